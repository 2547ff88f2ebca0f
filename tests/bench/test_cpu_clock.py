import pathlib
import platform
import re

import pytest

from gpudoc.bench import cpu_clock
from gpudoc.bench.cpu_clock import measure_clock_ghz, measure_units, rate_of_the_core

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code for x86-64")


def flags():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return frozenset(re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)[1].split())


@x86
def test_the_clock_is_that_of_a_cpu_and_stays_when_measured_again():
    first, second = (max(measure_clock_ghz() for _ in range(5)) for _ in range(2))
    assert 0.4 < first < 7
    assert second == pytest.approx(first, rel=0.25)


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
