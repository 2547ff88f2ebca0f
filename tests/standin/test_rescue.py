"""Running out of a GPU's memory for real, in every phase of training: the run is the one that had planned for less."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from gpudoc.train.data.order import Order

pytestmark = pytest.mark.standin

WORKLOAD = Path(__file__).with_name("hungry_workload.py")
# a context of 64 MiB leaves 448 of 512
SMALL = {"memory": "512M", "context_bytes": "64M"}
LINE = ("--model", "cfg.yaml", "--device", "cuda", "--no-preflight", "--plain", "--profile", "off")


def write(folder, *, model=None, data=None, optimizer=None, evaluated=False, **train):
    shutil.copy(WORKLOAD, folder)
    section = {"target": "hungry_workload:Rows", "args": data or {}}
    if evaluated:
        section["eval"] = {"target": "hungry_workload:Rows", "args": {"count": 32}}
    config = {
        "model": {"target": "hungry_workload:build_model", "args": model or {}},
        "data": section,
        "loss": {"target": "torch.nn:MSELoss"},
        "optimizer": optimizer or {"target": "torch.optim:AdamW", "args": {"lr": 0.001}},
        "train": {"global_batch": 32, "precision": "fp32", "log_every": 1, **train},
    }
    (folder / "cfg.yaml").write_text(json.dumps(config))


def train(gpus, run, *arguments, steps=4):
    return gpus.forked("train", *LINE, "--steps", str(steps), "--run-dir", run, *map(str, arguments))


def summary(folder, run):
    return json.loads((folder / run / "summary.json").read_text())


def rescues(folder, run):
    return [(row["step"], row["rescue"]) for row in summary(folder, run)["rescues"]]


def digests(folder, run, step=4):
    files = json.loads((folder / run / f"checkpoints/step-{step}/manifest.json").read_text())["files"]
    return {name: files[name]["sha256"] for name in ("model.safetensors", "optimizer.pt")}


def losses(folder, run):
    rows = [json.loads(line) for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def assert_as_planned(gpus, folder, batch, *arguments, **more):
    """The run `rescued` is, bit for bit, one that starts with `batch` and needs no rescue."""
    planned = train(gpus, "planned", "--batch-size", batch, *arguments, **more)
    assert planned.returncode == 0, planned.stderr
    assert not rescues(folder, "planned")
    assert losses(folder, "rescued") == losses(folder, "planned")
    assert digests(folder, "rescued") == digests(folder, "planned")


PHASES = {
    "forward": {"forward": 16},
    "backward": {"forward": 8, "backward": 8},
    # 320 MiB that the model keeps, 72 of weights and gradients; AdamW's state is 72 more
    "optimizer state": {"idle": 10, "bulk": 36},
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_step_is_done_again_in_halves_and_nothing_else_differs(standin, tmp_path, phase):
    write(tmp_path, model=PHASES[phase])
    gpus = standin(**SMALL)
    done = train(gpus, "rescued")
    assert done.returncode == 0, done.stderr
    found = rescues(tmp_path, "rescued")
    assert [(step, row["from_batch"], row["to_batch"]) for step, row in found] == [(0, 32, 16)]
    assert_as_planned(gpus, tmp_path, 16)


def test_memory_that_runs_out_late_and_with_accumulation_finds_batch_norm_as_it_was(standin, tmp_path):
    """One sample of the third step is too large for a micro batch of 8, after two steps that were kept."""
    order = Order(num_samples=256, global_batch=32, micro_batch=8, seed=0)
    write(tmp_path, model={"forward": 6}, data={"large": order.chunks(2)[1].indices[0], "count": 256}, seed=0)
    gpus = standin(**SMALL)
    done = train(gpus, "rescued", "--batch-size", 8, steps=3)
    assert done.returncode == 0, done.stderr
    found = rescues(tmp_path, "rescued")
    assert [(step, row["from_batch"], row["to_batch"]) for step, row in found] == [(2, 8, 4)]
    # what the first two steps left does not depend on the rescue, and so the third one's loss is all that is new
    resumed = train(gpus, "planned", "--batch-size", 8, steps=2)
    assert resumed.returncode == 0, resumed.stderr
    resumed = train(gpus, "planned", "--batch-size", 4, steps=3)
    assert resumed.returncode == 0, resumed.stderr
    assert not rescues(tmp_path, "planned")
    assert losses(tmp_path, "rescued") == losses(tmp_path, "planned")
    assert digests(tmp_path, "rescued", 3) == digests(tmp_path, "planned", 3)


def test_memory_that_runs_out_where_activations_are_computed_again_is_rescued(standin, tmp_path):
    """In backward, inside of activation checkpointing, which then has seen half of a forward pass."""
    write(tmp_path, model={"again": 16})
    recompute = ("--set", "activation_checkpointing=true")
    gpus = standin(**SMALL)
    done = train(gpus, "rescued", *recompute)
    assert done.returncode == 0, done.stderr
    found = rescues(tmp_path, "rescued")
    assert [(step, row["from_batch"], row["to_batch"]) for step, row in found] == [(0, 32, 16)]
    assert_as_planned(gpus, tmp_path, 16, *recompute)


def test_memory_that_runs_out_while_a_checkpoint_is_copied_leaves_the_checkpoint_whole(standin, tmp_path):
    """Over links so slow that the copy of the second step is under way for seconds after the third began."""
    order = Order(num_samples=256, global_batch=32, micro_batch=8, seed=0)
    data = {"large": order.chunks(2)[1].indices[0], "count": 256}
    write(tmp_path, model={"forward": 6, "bulk": 4}, data=data, seed=0, checkpoint_every=1)
    slow = standin(**SMALL, pcie_gbps=0.01)
    done = train(slow, "rescued", "--batch-size", 8, steps=3)
    assert done.returncode == 0, done.stderr
    found = rescues(tmp_path, "rescued")
    assert [(step, row["from_batch"], row["to_batch"]) for step, row in found] == [(2, 8, 4)]
    for steps, batch in ((2, 8), (3, 4)):
        resumed = train(standin(**SMALL), "planned", "--batch-size", batch, steps=steps)
        assert resumed.returncode == 0, resumed.stderr
        # one that comes due while the one before is still being written is left out, the last one never
        if steps == 3 or (tmp_path / f"rescued/checkpoints/step-{steps}").exists():
            assert digests(tmp_path, "rescued", steps) == digests(tmp_path, "planned", steps)
    assert losses(tmp_path, "rescued") == losses(tmp_path, "planned")


FORMS = {
    "fp16": ("fp16", {"target": "torch.optim:AdamW", "args": {"lr": 0.001}}),
    "fp16, not fused": ("fp16", {"target": "torch.optim:RMSprop", "args": {"lr": 0.001, "centered": True}}),
    "momentum": ("fp32", {"target": "torch.optim:SGD", "args": {"lr": 0.001, "momentum": 0.9}}),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_first_update_of_any_optimizer_can_be_done_again(standin, tmp_path, form):
    """Its state does not fit beside what the model keeps of 32 samples; with fp16 gradients were unscaled by then."""
    precision, optimizer = FORMS[form]
    idle = {"fp16": 10, "fp16, not fused": 10, "momentum": 11}[form]
    write(tmp_path, model={"idle": idle, "bulk": 36}, optimizer=optimizer, precision=precision)
    gpus = standin(**SMALL)
    done = train(gpus, "rescued")
    assert done.returncode == 0, done.stderr
    found = rescues(tmp_path, "rescued")
    assert [(step, row["from_batch"], row["to_batch"]) for step, row in found] == [(0, 32, 16)]
    assert_as_planned(gpus, tmp_path, 16)


def test_evaluation_takes_smaller_batches_and_training_goes_on_as_it_was(standin, tmp_path):
    write(tmp_path, model={"evaluate": 16}, evaluated=True, eval_every=2)
    gpus = standin(**SMALL)
    done = train(gpus, "rescued")
    assert done.returncode == 0, done.stderr
    found = rescues(tmp_path, "rescued")
    assert [(step, row["phase"], row["to_batch"]) for step, row in found] == [(2, "evaluate", 16)]
    assert_as_planned(standin(memory="4G"), tmp_path, 32)


def test_a_model_that_no_gpu_holds_is_told_with_what_to_do(standin, tmp_path):
    write(tmp_path, model={"bulk": 600})
    done = train(standin(**SMALL), "run")
    assert done.returncode == 1, done.stderr
    assert "has too little free memory to begin" in done.stderr
    assert "weights, gradients and optimizer state need" in done.stderr
    assert "Traceback" not in done.stderr
    assert "fault" not in done.stderr


def test_one_sample_that_does_not_fit_is_told_with_what_the_device_said(standin, tmp_path):
    write(tmp_path, model={"forward": 600, "norm": False})
    done = train(standin(**SMALL), "run", "--batch-size", 2)
    assert done.returncode == 1, done.stderr
    assert "out of memory at step 0 with one sample: float32[1, 16], float32[1, 1]; CUDA out of memory" in done.stderr


def test_the_asynchronous_allocators_error_is_told_with_the_figures_that_it_leaves_out(standin, tmp_path):
    write(tmp_path, model={"forward": 600, "norm": False})
    line = ("train", *LINE, "--steps", "4", "--run-dir", "run", "--batch-size", "2")
    done = standin(**SMALL).gpudoc(*line, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert done.returncode == 1, done.stderr
    assert "with one sample: float32[1, 16], float32[1, 1]; Allocation on device: " in done.stderr
    assert "MiB of 512 MiB is free, PyTorch uses " in done.stderr


RANKS = """
import sys
from pathlib import Path
import torch
from gpudoc.train.ranks import fsdp
from gpudoc.train.request import TrainRequest
from gpudoc.train.run import run
from gpudoc.train.settings import parse_flags
from gpudoc.train.start.place import as_rank

steps, batch, folder, sharded = sys.argv[1:]
if sharded == "sharded":
    fsdp.must_shard = lambda *_, **__: True
flags = parse_flags({"steps": int(steps), "micro_batch": int(batch) or None}, [])
where = {"device": "cuda", "run_dir": Path(folder)}
request = TrainRequest(model="cfg.yaml", profile="off", preflight=False, flags=flags, **where)

def drive():
    *_, last = run(request)
    return last.exit_code

sys.exit(as_rank(drive))
"""


def train_two(gpus, run, *, batch=0, steps=4, sharded=False):
    """Two ranks, each on its own GPU, that are started again when one of them crashes."""
    script = gpus.home / "ranks.py"
    script.write_text(RANKS)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
    kind = "sharded" if sharded else "whole"
    done = gpus.run(
        sys.executable, *launcher, "--max-restarts=2", str(script), str(steps), str(batch), run, kind,
        GPUDOC_EXIT_FILE=str(gpus.home / "exit"), OMP_NUM_THREADS="1",
    )  # fmt: skip
    # where a rank writes that it ended on purpose, which torchrun would take for a crash
    assert not (gpus.home / "exit").exists(), done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]


# a context on each GPU, and NCCL's buffers
TWO = {"gpus": 2, "memory": "576M", "context_bytes": "64M", "nccl_bytes": "32M"}
ONE_OF_TWO = {
    "forward": ({"forward": 32}, 0),
    "forward, four micro batches": ({"forward": 128}, 4),
    "optimizer state": ({"idle": 18, "bulk": 36}, 0),
}


@pytest.mark.parametrize("phase", ONE_OF_TWO)
def test_one_of_two_ranks_runs_out_and_both_do_the_step_again(standin, tmp_path, phase):
    model, batch = ONE_OF_TWO[phase]
    write(tmp_path, model={**model, "rank": 1})
    gpus = standin(**TWO)
    train_two(gpus, "rescued", batch=batch)
    found = rescues(tmp_path, "rescued")
    before = batch or 16
    assert [(step, row["from_batch"], row["to_batch"]) for step, row in found] == [(0, before, before // 2)]
    train_two(gpus, "planned", batch=before // 2)
    assert not rescues(tmp_path, "planned")
    assert losses(tmp_path, "rescued") == losses(tmp_path, "planned")
    assert digests(tmp_path, "rescued") == digests(tmp_path, "planned")


def test_sharded_ranks_start_again_when_evaluation_does_not_fit_on_one(standin, tmp_path):
    write(tmp_path, model={"evaluate": 32, "rank": 1, "norm": False}, evaluated=True, eval_every=3, checkpoint_every=2)
    train_two(standin(**TWO), "run", sharded=True)
    found = rescues(tmp_path, "run")
    assert [(step, row["phase"], row["to_batch"]) for step, row in found] == [(3, "evaluate", 8)]
    assert summary(tmp_path, "run")["resumed_from"] == "step-2"


def test_what_filled_the_gpu_is_kept_beside_the_run_and_read_by_doctor(standin, tmp_path):
    write(tmp_path, model={"forward": 16})
    gpus = standin(**SMALL)
    done = train(gpus, "rescued")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "rescued" / "memory-rank0.pickle"
    assert f"gpudoc doctor {path}" in done.stderr.replace("rescued/memory", f"{tmp_path}/rescued/memory")
    read = gpus.gpudoc("doctor", str(path), "--json", "--no-redact")
    (found,) = json.loads(read.stdout)["findings"]
    assert found["id"] in ("oom_capacity", "oom_fragmentation")
    assert any(seen["fact"] == "owner" and "weights" in seen["value"] for seen in found["evidence"])
