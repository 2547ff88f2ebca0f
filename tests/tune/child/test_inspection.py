import pytest
import torch

from gpudoc.tune.child.inspection import _device_facts, inspect_workload
from gpudoc.tune.child.probe import Place, Prepared
from gpudoc.tune.child.samples import collect_samples
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload


def inspected(folder, monkeypatch, **changes):
    monkeypatch.syspath_prepend(str(folder))
    workload = load_workload(str(write_workload(folder, **changes)))
    prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)
    told = []
    inspect_workload(prepared, Place(device="cpu", limit_bytes=None), told.append)
    return told


def test_facts_name_workload_machine_and_sizes(tmp_path, monkeypatch):
    facts, end = inspected(tmp_path, monkeypatch)
    assert end["end"] == "fits"
    assert facts["workload"]["optimizer"] == "torch.optim:AdamW"
    assert facts["parameters"] == 256 * 256 + 256 + 256 * 10 + 10
    assert facts["hardware"]["device"] == "cpu"
    assert facts["has_images"] is False
    assert (facts["can_fuse"], facts["can_recompute"]) == (True, False)
    assert inspected(tmp_path, monkeypatch, net={"depth": 2})[0]["can_recompute"] is True


def test_a_model_that_cannot_be_built_is_the_users_error(tmp_path, monkeypatch):
    (end,) = inspected(tmp_path, monkeypatch, net={"hiden": 3})
    assert end["end"] == "user_error"
    assert "hiden" in end["detail"]


@pytest.mark.standin
@pytest.mark.parametrize(("hip", "capability"), [(None, [9, 0]), ("6.4", None)])
def test_an_amd_gpu_has_no_compute_capability_although_torch_fills_one_in(monkeypatch, hip, capability):
    monkeypatch.setattr(torch.version, "hip", hip)
    assert _device_facts(torch.device("cuda"))["capability"] == capability
