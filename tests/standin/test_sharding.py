"""What several ranks hold of each weight on their GPUs, as PyTorch's allocator counts it, is what sharding goes by."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.standin

PROGRAM = """
import gc, json, types
import torch
from gpudoc.train.ranks.distributed import join, place_here
from gpudoc.train.ranks.fsdp import ROOM, must_shard, shard_if_needed

place = place_here()
device = torch.device("cuda", place.local_rank)
torch.cuda.set_device(device)
ranks = join(place, device)

def build(layers):
    with device:
        return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(layers)])

def peak(layers):
    gc.collect()
    torch.cuda.reset_peak_memory_stats(device)
    model = build(layers)
    parallel = ranks.wrap(model)
    optimizer = getattr(torch.optim, NAME)(model.parameters(), lr=1e-3, fused=True, **MORE)
    for _ in range(3):
        ranks.begin_step()
        for last in (False, True):
            with ranks.accumulating(parallel, last):
                parallel(torch.ones(2, 1024, device=device)).sum().backward()
        ranks.vote(0)
        ranks.reduce_gradients(list(model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    ranks._parallel = None
    return torch.cuda.max_memory_allocated(device)

# what does not grow with the model: cuBLAS's workspaces, and the bucket that is being exchanged
measured = (peak(32) - peak(16)) / (16 << 20)
model, held = build(16), 16 << 20
# the least memory per weight with which it would not be sharded
counted = next(n for n in range(1, 64) if not must_shard(model, NAME, int(n * held / ROOM) + 1, buckets=True))
config = types.SimpleNamespace(optimizer=types.SimpleNamespace(target="torch.optim:" + NAME))
found, _ = shard_if_needed(ranks, types.SimpleNamespace(config=config), model, int((counted - 2) * held / ROOM))
if place.rank == 0:
    print(json.dumps([measured, counted, found.is_sharded]))
ranks.leave()
"""


@pytest.mark.parametrize(
    ("name", "more", "expected"), [("AdamW", {}, 20), ("SGD", {"momentum": 0.9}, 16)], ids=["AdamW", "SGD"]
)
def test_what_is_counted_for_each_weight_is_what_it_takes(standin, name, more, expected):
    gpus = standin(gpus=2, memory="4G", math_ops="1e5")
    done = gpus.ranks(2, PROGRAM.replace("NAME", repr(name)).replace("MORE", repr(more)))
    assert done.returncode == 0, done.stderr
    measured, counted, is_sharded = json.loads(done.stdout)
    assert measured == pytest.approx(expected, rel=0.02)
    assert counted == expected
    assert is_sharded, "two bytes less than that for each weight, and it is spread"
