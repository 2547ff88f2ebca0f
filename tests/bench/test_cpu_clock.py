import pathlib
import platform
import re
from types import SimpleNamespace

import pytest

from gpudoc.bench import cpu_clock
from gpudoc.bench.cpu_clock import measure_clock_ghz, measure_units, rate_of_the_core

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code for x86-64")


def flags():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return frozenset(re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)[1].split())


@x86
def test_the_clock_of_this_cpu_is_a_number():
    assert measure_clock_ghz() > 0


class Core:
    """A core of 3.25 GHz that does one add or two multiply-adds per cycle, and is taken away in some windows."""

    def __init__(self, interrupted=()):
        self.now_ns, self.windows, self.interrupted = 0.0, 0, interrupted

    def perf_counter_ns(self):
        return self.now_ns

    def loaded(self, unit):
        per_cycle = 64 if unit == "adds" else 48 / 2

        def run(turns):
            self.now_ns += turns * per_cycle / 3.25
            self.now_ns += 2_000_000 if self.windows in self.interrupted else 0
            self.windows += 1
            return 0

        return SimpleNamespace(run=run)


def on(core, monkeypatch):
    monkeypatch.setattr(cpu_clock, "_loaded", core.loaded)
    monkeypatch.setattr(cpu_clock, "time", core)


@pytest.mark.parametrize("interrupted", [(), (3, 4, 11, 19, 30)])
def test_the_clock_is_that_of_windows_in_which_nobody_took_the_core(interrupted, monkeypatch):
    on(Core(interrupted), monkeypatch)
    assert measure_clock_ghz() == pytest.approx(3.25)


def test_a_unit_is_counted_in_cycles_of_the_clock(monkeypatch):
    on(Core(), monkeypatch)
    assert measure_units(frozenset({"avx2", "fma", "avx512f"})) == {"fma256": 2.0, "fma512": 2.0}


@x86
def test_units_do_half_one_or_two_instructions_per_cycle_and_only_those_the_cpu_has():
    rates = measure_units(flags())
    assert set(rates) <= set(cpu_clock.UNITS)
    assert all(rate in (0.5, 1.0, 2.0) for rate in rates.values())
    assert ("fma256" in rates) == ({"avx2", "fma"} <= flags())
    assert measure_units(frozenset()) == {}


def test_hardware_knows_no_other_rates():
    assert [rate_of_the_core(value) for value in (0.1, 0.48, 0.98, 1.83, 2.02, 3.1)] == [0.5, 0.5, 1.0, 2.0, 2.0, 2.0]


def test_turns_that_a_neighbour_took_leave_two_units_two():
    assert rate_of_the_core(1.5) == 2.0
    assert rate_of_the_core(1.3) == 2.0
    assert rate_of_the_core(0.7) == 1.0


def test_a_clock_read_a_little_low_adds_no_unit():
    assert rate_of_the_core(1.2) == 1.0


def test_a_system_that_forbids_executable_memory_has_no_clock(monkeypatch):
    def refuse(unit):
        raise OSError(13, "the system refused executable memory")

    cpu_clock._loaded.cache_clear()
    monkeypatch.setattr(cpu_clock.machine_code, "runs_here", lambda: "")
    monkeypatch.setattr(cpu_clock.machine_code, "load", refuse)
    assert measure_clock_ghz() is None
    assert "executable memory" in cpu_clock.why_not()
    assert measure_units(frozenset({"avx2", "fma"})) == {}
    cpu_clock._loaded.cache_clear()
