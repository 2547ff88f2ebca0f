"""A run that was interrupted and one that was not are the same, bit for bit."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.train.data.draws import Generators
from gpudoc.train.start.identity import digest
from gpudoc.train.state import checkpoint
from gpudoc.train.state.capture import copied_bytes, load_model, restore_rng, rng_document
from gpudoc.train.state.restore import load
from tests.train.support import metrics, train_here, write_workload
from tests.train.torchao_like import hide, plant


def state_of(run, step):
    """Everything in a checkpoint that a resumed run must reproduce, as one digest."""
    path = run / "checkpoints" / f"step-{step}"
    loaded = load(path)
    kept = {key: value for key, value in loaded.state.items() if key not in ("seconds", "final_loss")}
    return digest([dict(loaded.model), dict(loaded.optimizer), kept, dict(loaded.rng(0))])


def losses(run):
    return [(row["step"], row["loss"]) for row in metrics(run) if "loss" in row]


def test_copied_bytes_are_those_of_weights_buffers_and_optimizer_state():
    model = nn.Sequential(nn.Linear(10, 5, bias=False), nn.BatchNorm1d(5))
    optimizer = torch.optim.AdamW(model.parameters())
    weights = 4 * (50 + 5 + 5)
    buffers = 4 * (5 + 5) + 8
    assert copied_bytes(model, optimizer) == weights + buffers
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    steps = 3 * 4
    assert copied_bytes(model, optimizer) == weights + buffers + 2 * weights + steps


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("draw", "interrupted"), [("", 5), ("torch", 8), ("python numpy torch", 11)])
def test_a_run_in_two_pieces_is_the_run_in_one(tmp_path, precision, draw, interrupted):
    """Interrupted in the middle of an epoch, at its end (step 8) and in the next, with dropout and batch norm."""
    write_workload(
        tmp_path,
        model={"dropout": 0.3, "norm": True},
        data={"draw": draw, "count": 93},
        schedule={"name": "cosine", "warmup_steps": 3},
        precision=precision,
        log_every=1,
        grad_clip=1.0,
    )
    common = ("--model", "cfg.yaml", "--profile", "off", "--set", "micro_batch=5", "--steps", "14")
    assert train_here(tmp_path, *common, "--run-dir", "whole") == 0
    halves = (*common, "--run-dir", "halves", "--set", f"checkpoint_every={interrupted}", "--set", "keep=9")
    assert train_here(tmp_path, *halves) == 0
    # as if the process had died right after the checkpoint
    run = tmp_path / "halves"
    checkpoint.remove_others(run / "checkpoints", {interrupted})
    (run / "summary.json").unlink()
    assert train_here(tmp_path, *halves) == 0
    assert json.loads((run / "summary.json").read_text())["resumed_from"] == f"step-{interrupted}"
    assert losses(run) == losses(tmp_path / "whole")
    assert state_of(run, 14) == state_of(tmp_path / "whole", 14)


def test_workers_and_micro_batches_draw_the_same_samples(tmp_path):
    """Augmentation depends on the sample's position only: the losses of an undisturbed model agree."""
    write_workload(tmp_path, data={"draw": "python numpy torch"}, log_every=1)
    found = {}
    for workers, micro in ((0, 12), (2, 12), (2, 5)):
        run = f"w{workers}m{micro}"
        arguments = ("--num-workers", workers, "--set", f"micro_batch={micro}", "--steps", "10", "--run-dir", run)
        assert train_here(tmp_path, "--model", "cfg.yaml", "--profile", "off", *arguments) == 0
        found[workers, micro] = [loss for _, loss in losses(tmp_path / run)]
    assert found[2, 12] == found[0, 12]
    assert found[2, 5] == pytest.approx(found[0, 12], rel=1e-5)


def test_random_state_comes_back_through_a_file(tmp_path):
    generators = Generators()
    torch.save(rng_document(generators.snapshot()), tmp_path / "rng.pt")
    expected = torch.rand(3)
    restore_rng(torch.load(tmp_path / "rng.pt", weights_only=True), generators)
    assert torch.equal(torch.rand(3), expected)


def test_tied_weights_are_written_under_each_name_and_load_strictly(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

    model = Tied()
    content = checkpoint.Content(
        step=1, model=checkpoint.model_tensors(model), optimizer={}, state={"schema": "x"}, rng={0: {}}
    )
    path = checkpoint.write(tmp_path, content)
    loaded = load(path)
    assert sorted(loaded.model) == ["embed.weight", "head.weight"]
    other = Tied()
    other.load_state_dict(dict(loaded.model))
    assert torch.equal(other.head.weight, model.embed.weight)


def test_wrapped_names_load_into_a_plain_model_and_back():
    model = nn.Sequential(nn.Linear(2, 2))
    compiled = torch.compile(model)
    tensors = checkpoint.model_tensors(compiled)
    assert sorted(tensors) == ["0.bias", "0.weight"]
    load_model(compiled, tensors, "here")
    load_model(nn.Sequential(nn.Linear(2, 2)), tensors, "here")


def test_weights_of_another_model_are_refused_by_name():
    tensors = checkpoint.model_tensors(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(GpudocError, match=r"another model: 0\.bias"):
        load_model(nn.Sequential(nn.Linear(2, 2, bias=False)), tensors, "here")
    with pytest.raises(GpudocError, match="size mismatch"):
        load_model(nn.Sequential(nn.Linear(3, 2)), tensors, "here")


@pytest.fixture
def narrow(tmp_path, tmp_path_factory, monkeypatch):
    """A run of eight steps whose optimizer has its state in 8 bits."""
    plant(tmp_path_factory.mktemp("packages"), monkeypatch)
    write_workload(tmp_path, schedule={"name": "cosine", "warmup_steps": 3}, log_every=1)
    common = ("--model", "cfg.yaml", "--profile", "off", "--set", "checkpoint_every=5", "--set", "keep=9")
    return lambda folder, *more: train_here(tmp_path, *common, "--run-dir", folder, *more)


def test_a_state_of_8_bits_comes_back_bit_for_bit(tmp_path, narrow):
    eight = ("--set", "optimizer_state=8bit")
    assert narrow("whole", *eight, "--steps", "8") == 0
    state = load(tmp_path / "whole" / "checkpoints" / "step-5").optimizer["state"][0]["exp_avg"]
    assert (type(state).__name__, state.codes.dtype) == ("Held", torch.int8)
    # what was copied is what the step had, whatever the next ones made of it
    assert not state.codes.equal(
        load(tmp_path / "whole" / "checkpoints" / "step-8").optimizer["state"][0]["exp_avg"].codes
    )
    shutil.copytree(tmp_path / "whole", tmp_path / "halves")
    checkpoint.remove_others(tmp_path / "halves" / "checkpoints", {5})
    (tmp_path / "halves" / "summary.json").unlink()
    assert narrow("halves", *eight, "--steps", "8") == 0
    assert state_of(tmp_path / "halves", 8) == state_of(tmp_path / "whole", 8)
    assert dict(losses(tmp_path / "halves")) == dict(losses(tmp_path / "whole"))
    told = json.loads((tmp_path / "whole" / "summary.json").read_text())["memory"]
    weights = 4 * (8 * 16 + 16 + 16 + 1)
    assert told["bytes"]["optimizer"] == 2 * (weights // 4) + (2 + 1) * 4 * 4


def test_how_wide_a_state_is_may_not_change_when_a_run_goes_on(tmp_path, narrow, capfd, monkeypatch):
    assert narrow("run", "--set", "optimizer_state=8bit", "--steps", "5") == 0
    assert narrow("run", "--steps", "8") == 2
    assert "its optimizer_state is 8bit, that of this run full" in capfd.readouterr().err
    hide(monkeypatch)
    with pytest.raises(GpudocError, match="state is from torchao") as caught:
        load(tmp_path / "run" / "checkpoints" / "step-5")
    assert caught.value.hint == "pip install torchao"


def test_bytes_of_a_quantized_state_are_those_that_it_has(tmp_path, monkeypatch):
    plant(tmp_path / "packages", monkeypatch)
    from torchao.optim import AdamW8bit

    model = nn.Linear(10, 5, bias=False)
    optimizer = AdamW8bit(model.parameters())
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    assert copied_bytes(model, optimizer) == 4 * 50 + 2 * (50 + 4) + 4
