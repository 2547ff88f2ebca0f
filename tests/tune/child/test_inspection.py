import pytest
import torch

from gpudoc.tune.child.inspection import _card, inspect_workload
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.samples import collect_samples
from gpudoc.tune.trial.messages import End
from gpudoc.tune.trial.wire import RankPlace
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload


def inspected(folder, monkeypatch, **changes):
    monkeypatch.syspath_prepend(str(folder))
    workload = load_workload(str(write_workload(folder, **changes)))
    prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)
    told = []
    inspect_workload(prepared, RankPlace(device="cpu", limit_bytes=None), told.append)
    return told


def test_facts_name_workload_machine_and_sizes(tmp_path, monkeypatch):
    found, ended = inspected(tmp_path, monkeypatch)
    assert ended.end is End.FITS
    assert found.workload.optimizer == "torch.optim:AdamW"
    assert found.parameter_bytes == 4 * (256 * 256 + 256 + 256 * 10 + 10)
    assert found.hardware.device == "cpu"
    assert found.num_samples == 512
    assert (found.card, found.has_images) == (None, False)
    assert (found.can_fuse, found.can_recompute) == (True, False)
    assert (found.can_foreach, found.has_blocks, found.sizes_differ) == (True, False, False)
    monkeypatch.setattr("gpudoc.tune.child.inspection.has_torchao", lambda: True)
    assert inspected(tmp_path, monkeypatch)[0].can_shrink is True
    monkeypatch.setattr("gpudoc.tune.child.inspection.has_torchao", lambda: False)
    assert inspected(tmp_path, monkeypatch)[0].can_shrink is False
    assert (found.matmul_precision, found.cudnn_benchmark) == (torch.get_float32_matmul_precision(), False)
    deep = inspected(tmp_path, monkeypatch, net={"depth": 2})[0]
    assert (deep.can_recompute, deep.has_blocks) == (True, True)
    assert inspected(tmp_path, monkeypatch, data={"lengths": True})[0].sizes_differ is True


def test_a_model_that_cannot_be_built_is_the_users_error(tmp_path, monkeypatch):
    (ended,) = inspected(tmp_path, monkeypatch, net={"hiden": 3})
    assert ended.end is End.USER_ERROR
    assert "hiden" in ended.detail


@pytest.mark.standin
@pytest.mark.parametrize(("hip", "capability"), [(None, (9, 0)), ("6.4", None)])
def test_an_amd_gpu_has_no_compute_capability_although_torch_fills_one_in(monkeypatch, hip, capability):
    monkeypatch.setattr(torch.version, "hip", hip)
    assert _card(torch.device("cuda")).capability == capability
