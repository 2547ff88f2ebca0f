"""Out of memory for real, under RLIMIT_DATA: the step is undone and done again, and nothing else differs."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import yaml
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.train.loop.course import Rescues
from gpudoc.train.loop.rescue import Rescuer, RescueRules
from gpudoc.train.ranks.protocol import Alone
from gpudoc.train.state.capture import RunProgress
from gpudoc.workload import recompute
from gpudoc.workload.flops import Counter
from tests.train.support import ROOT, as_in_a_process, environment, metrics, summary, train, train_here

HUNGRY = '''
import torch
from torch import nn

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=generator), torch.randn(1, generator=generator)

class Wide(nn.Module):
    """Needs about `mib` MiB of activations for each sample; dropout and batch norm would show a step done twice."""

    def __init__(self, mib, blocks, norm):
        super().__init__()
        self.width = mib * 1024 * 256 // (256 * 3)
        middle = nn.BatchNorm1d(32) if norm else nn.LayerNorm(32)
        self.first = nn.Sequential(nn.Linear(256, 32), middle, nn.Dropout(0.2))
        self.blocks = nn.ModuleList(Block(self.width) for _ in range(blocks))
        self.last = nn.Linear(32, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.scale = nn.Linear(32, 32)

    def forward(self, x):
        x = self.scale(x)
        wide = x.repeat(1, 8 * self.width // 32 * 32)
        return x + torch.sin(torch.sin(wide)).view(x.shape[0], -1, 32).mean(1)

def build_model(mib, blocks=1, norm=True):
    return Wide(mib, blocks, norm)

class Large(Rows):
    """Samples of `mib` MiB with noise of their own; the one at `broken` can never be read."""

    def __init__(self, mib, broken=-1):
        self.numbers, self.broken = mib << 18, broken

    def __getitem__(self, index):
        if index == self.broken:
            raise MemoryError("Unable to allocate 7.28 TiB")
        x = torch.zeros(self.numbers)
        x[:256] = torch.randn(256) + index / 64
        return x, torch.randn(1)

class Glance(nn.Module):
    """Sees little of a sample, so that only reading takes memory."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 32), nn.BatchNorm1d(32, track_running_stats=False), nn.Dropout(0.2))
        self.last = nn.Linear(32, 1)

    def forward(self, x):
        return self.last(self.layers(x[:, :256]))
'''


def write(folder, mib, blocks=1, **train_section):
    (folder / "hungry_workload.py").write_text(HUNGRY)
    config = {
        "model": {"target": "hungry_workload:build_model", "args": {"mib": mib, "blocks": blocks, "norm": blocks == 1}},
        "data": {"target": "hungry_workload:Rows"},
        "loss": {"target": "torch.nn:MSELoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 0.001}},
        "train": {"global_batch": 32, "precision": "fp32", "log_every": 1, "deterministic": True, **train_section},
    }
    (folder / "cfg.yaml").write_text(json.dumps(config))


def write_large(folder, mib, **args):
    write(folder, 1)
    config = json.loads((folder / "cfg.yaml").read_text())
    config["model"] = {"target": "hungry_workload:Glance"}
    config["data"] = {"target": "hungry_workload:Large", "args": {"mib": mib, **args}}
    config["train"]["global_batch"] = 16
    (folder / "cfg.yaml").write_text(json.dumps(config))


def digests(run):
    files = json.loads((run / "checkpoints/step-2/manifest.json").read_text())["files"]
    return {name: files[name]["sha256"] for name in ("model.safetensors", "optimizer.pt")}


LINE = ("--model", "cfg.yaml", "--no-preflight", "--steps", 2)


@pytest.fixture(scope="module")
def rescued(tmp_path_factory):
    """32 samples at 24 MiB do not fit under 900 MiB; fewer do."""
    folder = tmp_path_factory.mktemp("rescued")
    write(folder, 24)
    store = {"GPUDOC_PROFILE_DIR": str(folder / "store")}
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", "train", "--device", "cpu", *map(str, LINE), "--memory-limit", "900MiB"],
        cwd=folder,
        env={**environment(), **store},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return folder, done


def test_a_real_allocation_fails_and_the_run_finishes_with_its_global_batch(rescued):
    folder, done = rescued
    assert done.returncode == 0, done.stderr
    found = summary(folder / "runs" / "cfg")
    assert found["rescues"]
    assert found["rescues"][0]["rescue"]["from_batch"] == 32
    assert found["samples"] == 64
    assert "out of memory at step 0" in done.stderr
    assert any("rescue" in row for row in metrics(folder / "runs" / "cfg"))


def test_the_rescued_run_is_bit_equal_to_one_that_planned_the_smaller_micro_batch(rescued):
    folder, _ = rescued
    small = summary(folder / "runs" / "cfg")["rescues"][-1]["rescue"]["to_batch"]
    with as_in_a_process():
        line = (*LINE, "--profile", "off", "--run-dir", "planned", "--batch-size", small)
        assert train_here(folder, *line) == 0
    assert not summary(folder / "planned")["rescues"]
    assert digests(folder / "runs/cfg") == digests(folder / "planned")
    losses = [
        [row["loss"] for row in metrics(run) if "loss" in row] for run in (folder / "runs/cfg", folder / "planned")
    ]
    assert losses[0] == losses[1]


def test_the_next_run_starts_with_what_the_rescue_taught(rescued):
    folder, _ = rescued
    taught = [yaml.safe_load(path.read_text()) for path in (folder / "store").glob("*.yaml")]
    own = yaml.safe_load((folder / "runs/cfg/profile.yaml").read_text())
    small = summary(folder / "runs" / "cfg")["rescues"][-1]["rescue"]["to_batch"]
    assert own["settings"]["micro_batch"] == small
    assert [profile["settings"]["micro_batch"] for profile in taught] == [small]
    assert own["evidence"]["rescues"][-1]["to_batch"] == small
    assert str(ROOT) not in json.dumps(taught)


def test_one_sample_that_does_not_fit_turns_on_activation_checkpointing_then_gives_up_with_advice(tmp_path):
    write(tmp_path, 700, blocks=2)
    done = train(tmp_path, *LINE, "--profile", "off", "--memory-limit", "900MiB", "--set", "micro_batch=1")
    assert done.returncode == 1, done.stderr
    assert "with activation checkpointing" in done.stderr
    assert "out of memory at step 0 with one sample: float32[1, 256]" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_a_part_was_recomputed_every_block_is_before_it_gives_up():
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(2)))
    recompute.apply(blocks, "blocks:1")
    progress = RunProgress(activation_checkpointing="blocks:1")
    rescues = Rescues(course=SimpleNamespace(progress=progress), metrics=[])
    rescuer = Rescuer(SimpleNamespace(model=blocks, device=torch.device("cpu")), rescues, RescueRules())
    assert rescuer._start_recomputing()
    assert progress.activation_checkpointing is True
    with Counter() as counter:
        blocks(torch.ones(1, 2)).sum().backward()
    # a product of each block, of 1 x 2 with 2 x 2
    assert counter.again == 2 * 8
    assert not rescuer._start_recomputing()


@pytest.mark.slow
def test_rescue_can_be_switched_off(tmp_path):
    write(tmp_path, 60)
    done = train(tmp_path, *LINE, "--profile", "off", "--memory-limit", "900MiB", "--set", "rescue=false")
    assert done.returncode == 1
    assert "rescue is off" in done.stderr


@pytest.mark.slow
def test_memory_that_runs_out_while_samples_are_read_shrinks_the_batch_too_and_nothing_else_differs(tmp_path):
    """16 samples of 32 MiB are held twice while they become one batch; in two halves a quarter less is needed."""
    write_large(tmp_path, 32)
    short = train(tmp_path, *LINE, "--profile", "off", "--memory-limit", "1300MiB")
    assert short.returncode == 0, short.stderr
    rescues = [row["rescue"] for row in summary(tmp_path / "runs/cfg")["rescues"]]
    assert rescues[0]["from_batch"] == 16
    assert rescues[0]["phase"] == "train"
    assert rescues[0]["shapes"] == "samples being read, 16 at once"
    planned = train(
        tmp_path, *LINE, "--profile", "off", "--run-dir", "planned", "--batch-size", rescues[-1]["to_batch"]
    )
    assert planned.returncode == 0, planned.stderr
    assert not summary(tmp_path / "planned")["rescues"]
    assert digests(tmp_path / "runs/cfg") == digests(tmp_path / "planned")


@pytest.mark.slow
def test_reading_without_rescue_ends_with_what_the_data_set_said(tmp_path):
    write_large(tmp_path, 1, broken=7)
    done = train(tmp_path, *LINE, "--profile", "off", "--set", "rescue=false")
    assert done.returncode == 1
    assert ": the data set failed while reading sample " in done.stderr
    assert "MemoryError: Unable to allocate 7.28 TiB" in done.stderr
    assert "rescue is off" in done.stderr


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_sample_that_no_memory_is_enough_for_is_named(tmp_path, capfd, workers):
    write_large(tmp_path, 1, broken=7)
    with as_in_a_process():
        assert train_here(tmp_path, *LINE, "--profile", "off", "--num-workers", workers) == 1
    said = capfd.readouterr().err
    assert "micro batch 16 -> 8" in said
    assert "with one sample: the data set failed while reading sample 7: MemoryError: Unable to" in said
    assert "hungry_workload.py:" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("optimizer", "named"), [(torch.optim.AdamW, True), (torch.optim.SGD, False)])
def test_where_the_update_has_no_room_a_state_of_8_bits_is_named_for_adam(optimizer, named):
    parts = SimpleNamespace(optimizer=optimizer([torch.zeros(1, requires_grad=True)]), ranks=Alone())
    with pytest.raises(GpudocError) as caught:
        Rescuer(parts, None, RescueRules()).judge(torch.OutOfMemoryError("CUDA out of memory."), "torn", ())
    assert ("--set optimizer_state=8bit" in caught.value.hint) is named
    assert "a smaller --batch-size" in caught.value.hint
