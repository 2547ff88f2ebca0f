from gpudoc.bench.cases import all_reduce, cuda_matmul, cuda_peers
from gpudoc.bench.cases.catalog import CPU_CASES, CUDA_CASES, case_names, cases_for
from gpudoc.units import MIB
from tests.bench.host_gpu import HostGpu, bench


def test_a_device_has_its_own_cases_each_named_once():
    assert cases_for("cpu") is CPU_CASES
    assert cases_for("cuda:3") is CUDA_CASES
    for cases in (CPU_CASES, CUDA_CASES):
        assert len({case.meaning for case in cases}) == len(cases)
        assert all(case.share > 0 and case.meaning for case in cases)
    assert {case.name for case in CPU_CASES} <= {case.name for case in CUDA_CASES}, "a GPU's host is measured too"
    assert set(case_names()) == {case.name for case in (*CPU_CASES, *CUDA_CASES)}


def test_every_row_that_a_case_gives_is_explained_and_no_other(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(bytes(MIB))
    monkeypatch.setattr(
        all_reduce, "measure", lambda backend, kind, ranks, sizes, is_alive: {size: [1e-3] * 3 for size in sizes}
    )
    monkeypatch.setattr(cuda_matmul, "choose_shapes", lambda *_: (cuda_matmul.Shape(256, 256, 128),))
    monkeypatch.setattr(cuda_matmul, "REST_S", 0.0)
    monkeypatch.setattr(cuda_matmul, "QUICK_SUSTAINED_S", 0.05)
    plan = {"threads": 1, "memory_bytes": 128 * MIB, "num_gpus": 2, "data": str(tmp_path)}
    # copies from one GPU to another need two: their row is named in the source alone
    on_gpu = [case for case in CUDA_CASES[: -len(CPU_CASES)] if case.name != "p2p"]
    for case in (*CPU_CASES, *on_gpu):
        device = {"gpu": HostGpu(free_bytes=96 * MIB)} if case in on_gpu else {"device": "cpu"}
        given = {reading.name for reading in case.run(bench(budget_s=0.02, **device, **plan))}
        assert given == set(case.rows), case.name
    assert set(cuda_peers.CASE.rows) == {"p2p"}


def test_an_explanation_is_a_sentence():
    for case in (*CPU_CASES, *CUDA_CASES):
        assert all(text[0].isupper() and text.endswith(".") for text in case.rows.values()), case.name
