import multiprocessing

from gpudoc.bench.cases.loader import BATCH, CASE, SAMPLE_BYTES, ReadySamples
from tests.bench.host_gpu import bench


def test_rows_for_no_one_and_two_workers_and_no_worker_left_behind():
    readings = list(CASE.run(bench(device="cpu", threads=2)))
    rows = {(r.name, r.parameters["workers"]) for r in readings}
    assert rows == {("loader_batch", n) for n in (0, 1, 2)} | {("loader_start", n) for n in (1, 2)}
    assert all(r.better == "lower" for r in readings)
    assert {r.parameters.get("bytes") for r in readings if r.name == "loader_batch"} == {BATCH * SAMPLE_BYTES}
    assert not multiprocessing.active_children()


def test_a_sample_has_the_bytes_that_are_said():
    sample = ReadySamples()[0]
    assert sample.numel() * sample.element_size() == SAMPLE_BYTES
