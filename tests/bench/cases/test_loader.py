import multiprocessing

import pytest

from gpudoc.bench.cases.loader import BATCH, CASE, SAMPLE_BYTES, ReadySamples
from tests.bench.host_gpu import bench


@pytest.mark.parametrize(("quick", "most"), [(False, 2), (True, 1)])
def test_rows_for_no_one_and_two_workers_and_no_worker_left_behind(quick, most):
    readings = list(CASE.run(bench(device="cpu", threads=2, quick=quick)))
    rows = {(r.name, r.parameters["workers"]) for r in readings}
    assert rows == {("loader_batch", n) for n in range(most + 1)} | {("loader_start", n) for n in range(1, most + 1)}
    assert all(r.better == "lower" for r in readings)
    assert {r.parameters.get("bytes") for r in readings if r.name == "loader_batch"} == {BATCH * SAMPLE_BYTES}
    assert not multiprocessing.active_children()


def test_a_sample_has_the_bytes_that_are_said():
    sample = ReadySamples()[0]
    assert sample.numel() * sample.element_size() == SAMPLE_BYTES
