import torch

from gpudoc.bench.cases import cpu_matmul
from gpudoc.bench.cases.cpu_matmul import CASE, LARGE, CpuProduct, choose_points
from tests.bench.host_gpu import bench


def test_all_threads_at_every_size_and_fewer_at_one():
    points = choose_points(8, quick=False)
    assert CpuProduct("bf16", LARGE, 8) in points
    assert [p.threads for p in points if p.dtype == "fp32" and p.size == 1024] == [1, 2, 4, 8]
    assert CpuProduct("fp32", LARGE, 2) not in choose_points(2, quick=True)
    assert set(choose_points(16, quick=True)) < set(choose_points(16, quick=False))
    # what few cores need long for, and what is too little for many
    assert max(p.size for p in choose_points(2, quick=True)) == 1024
    assert max(p.size for p in choose_points(16, quick=True)) == 2048
    assert {p.threads for p in choose_points(1, quick=False)} == {1}


def test_products_are_measured_and_right(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_matmul, "choose_points", lambda *_: (CpuProduct("fp32", 64, 1), CpuProduct("bf16", 64, 1)))
    readings = list(CASE.run(bench(device="cpu")))
    torch.set_num_threads(before)
    assert [r.parameters["dtype"] for r in readings] == ["fp32", "bf16"]
    assert not [r.corrupted for r in readings if r.corrupted]
    assert all(min(r.samples) > 0 for r in readings)


def test_a_product_that_would_take_far_too_long_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(
        cpu_matmul, "choose_points", lambda *_: (CpuProduct("fp32", 32, 1), CpuProduct("fp32", 10**6, 1))
    )
    run = bench(device="cpu")
    assert len(list(CASE.run(run))) == 1
    assert run.left_out[0][0] == "matmul fp32 1000000"
