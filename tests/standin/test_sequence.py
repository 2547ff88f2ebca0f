"""On a GPU, too, a trial of tune asks the caching allocator for what training asks for, block by block."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.train.step.test_sequence import CASES, GLOBAL_BATCH, write_config

pytestmark = pytest.mark.standin

# what is asked of the allocator from the building of the parts to the end of the third step
CODE = """
import json, pathlib, sys
import torch
from torch.utils.data import default_collate
from gpudoc.train.events import Progressed
from gpudoc.train.request import TrainRequest
from gpudoc.train.start import assemble
from gpudoc.train.start.build import build
from gpudoc.train.stop import Stop
from gpudoc.tune.child import training
from gpudoc.tune.trial.messages import Variant
from gpudoc.workload.build import load_workload

STEPS, GLOBAL_BATCH = 3, {batch}
flags, variant, num_micros = json.loads({case!r})
device = torch.device("cuda", 0)
config = str(pathlib.Path("cfg.yaml").resolve())
sys.path.insert(0, str(pathlib.Path.cwd()))
real = assemble.build_parts

def recorded(*given):
    torch.cuda.memory._record_memory_history("all", stacks="python")
    return real(*given)

assemble.build_parts = training.build_parts = recorded

def trace():
    found = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(None)
    sign = {{"alloc": 1, "free_requested": -1}}
    return [sign[row["action"]] * row["size"] for row in found if row["action"] in sign]

if {who!r} == "training":
    request = TrainRequest(
        model=config, profile="off", device="cuda", preflight=False, run_dir=pathlib.Path("run"), resume="never",
        flags={{"log_every": 1, "steps": STEPS + 1, "micro_batch": GLOBAL_BATCH, **flags}},
    )
    building = build(request, Stop())
    try:
        while True:
            next(building)
    except StopIteration as end:
        job, lock = end.value
    for event in job.loop.events():
        if isinstance(event, Progressed) and event.step == STEPS:
            break
    job.stepper.free_gradients()
else:
    workload = load_workload(config)
    samples = [workload.dataset[index] for index in range(GLOBAL_BATCH // num_micros)]
    batches = [default_collate(samples) for _ in range(num_micros)]
    trainee = training.Trainee(workload, Variant(**variant), device)
    for _ in range(STEPS):
        trainee.train(batches)
print(json.dumps(trace()))
"""
WANTED = ("plain", "accumulation", "not fused", "all at once")


def in_order(sizes):
    """Frees in a row by size: autocast and autograd let go of what they hold in the order of addresses."""
    rows = ((freed, list(row)) for freed, row in itertools.groupby(sizes, key=lambda size: size < 0))
    return [size for freed, row in rows for size in (sorted(row) if freed else row)]


@pytest.mark.parametrize("case", [*(CASES[name] for name in WANTED), ({"precision": "fp16"},) * 2 + (1, {})], ids=str)
def test_a_trial_asks_the_allocator_for_what_training_asks_for(standin, case):
    flags, variant, num_micros, changes = case
    gpus = standin()
    write_config(gpus.home, changes)
    told = []
    # each in a separate process: cuBLAS asks for its workspace once
    for who in ("training", "trial"):
        code = CODE.format(batch=GLOBAL_BATCH, case=json.dumps([flags, variant, num_micros]), who=who)
        done = gpus.python(code)
        assert done.returncode == 0, done.stderr[-2000:]
        told.append(json.loads(done.stdout.strip().splitlines()[-1]))
    trained, tried = (in_order(sizes) for sizes in told)
    first = next((at for at, (a, b) in enumerate(zip(trained, tried, strict=False)) if a != b), None)
    assert first is None, f"at {first}: {trained[max(0, first - 5) :][:10]} and {tried[max(0, first - 5) :][:10]}"
    assert len(trained) == len(tried) > 100
