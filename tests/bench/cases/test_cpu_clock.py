import platform

import pytest

from gpudoc.bench import cpu_clock
from gpudoc.bench.cases.cpu_clock import CASE
from tests.bench.host_gpu import bench

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code for x86-64")


@x86
def test_the_row_carries_what_the_units_do_per_cycle():
    (reading,) = CASE.run(bench(device="cpu", cpu_flags=("avx2", "fma")))
    assert reading.unit == "GHz"
    assert min(reading.samples) > 0
    assert reading.context["fp32_fma_per_cycle"] in (4, 8, 16)
    assert "bf16_fma_per_cycle" not in reading.context


@x86
def test_without_known_flags_the_clock_alone_is_given():
    (reading,) = CASE.run(bench(device="cpu"))
    assert "fp32_fma_per_cycle" not in reading.context


def test_where_no_machine_code_runs_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(cpu_clock.machine_code, "runs_here", lambda: "no machine code for riscv64")
    assert cpu_clock.why_not() == "no machine code for riscv64"
