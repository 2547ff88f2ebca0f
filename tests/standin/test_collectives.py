"""NCCL of the stand-in: right numbers between processes, groups, messages, split communicators, and waiting in vain."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.standin

BEGIN = """
import os, torch, torch.distributed as dist
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", rank) if EAGER else None)
torch.manual_seed(rank)

def same(made, **tolerance):
    on_cpu, on_gpu = made("cpu"), made("cuda")
    assert torch.allclose(on_cpu, on_gpu.cpu(), **tolerance), (on_cpu, on_gpu)
"""
NUMBERS = (
    BEGIN
    + """
x = torch.randn(1_500_000)  # more than goes through at once
for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
    def all_reduced(device):
        y = x.to(device, copy=True); dist.all_reduce(y, op); return y
    same(all_reduced, atol=1e-5)
mean = x.cuda(); dist.all_reduce(mean, dist.ReduceOp.AVG)
total = x.clone(); dist.all_reduce(total)
assert torch.allclose(mean.cpu(), total / ranks, atol=1e-5)
scaled = x.cuda(); dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
assert torch.allclose(scaled.cpu(), total * 0.5, atol=1e-5)
half = x.bfloat16().cuda(); dist.all_reduce(half)
rounded = x.bfloat16(); dist.all_reduce(rounded)
assert torch.allclose(half.float().cpu(), rounded.float(), rtol=0.02, atol=0.1)

def broadcast(device):
    y = x.to(device, copy=True); dist.broadcast(y, ranks - 1); return y
def reduced(device):
    y = x.to(device, copy=True); dist.reduce(y, 1); return y if rank == 1 else torch.zeros(1)
def gathered(device):
    y = torch.empty(ranks * x.numel(), device=device); dist.all_gather_into_tensor(y, x.to(device)); return y
same(broadcast); same(reduced, atol=1e-5); same(gathered)
mine = torch.empty(x.numel() // ranks, device="cuda")
dist.reduce_scatter_tensor(mine, x.cuda())
assert torch.allclose(mine.cpu(), total.chunk(ranks)[rank], atol=1e-5)
numbers = torch.arange(ranks * 3, device="cuda") + 100 * rank
turned = torch.empty_like(numbers); dist.all_to_all_single(turned, numbers)
assert turned.tolist() == [100 * other + 3 * rank + i for other in range(ranks) for i in range(3)]
dist.barrier()
print(f"rank {rank} done")
dist.destroy_process_group()
"""
)
GROUPS = (
    BEGIN
    + """
big = 2_000_000
mine = torch.full((big,), float(rank), device="cuda")
theirs = torch.empty(big, device="cuda")
ahead, behind = (rank + 1) % ranks, (rank - 1) % ranks
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, ahead), dist.P2POp(dist.irecv, theirs, behind)]):
    work.wait()
assert theirs.unique().tolist() == [float(behind)]
if rank == 0: dist.send(mine[:5], 1)
if rank == 1:
    dist.recv(theirs[:5], 0)
    assert theirs[:5].tolist() == [0.0] * 5
parts = [torch.full((10 + i,), float(rank + i), device="cuda") for i in range(3)]
with dist._coalescing_manager(device=torch.device("cuda", rank), async_ops=True) as together:
    for part in parts: dist.all_reduce(part)
together.wait()
assert [float(part[0]) for part in parts] == [sum(other + i for other in range(ranks)) for i in range(3)]
halves = [dist.new_group([r for r in range(ranks) if r % 2 == odd]) for odd in range(2)]
one = torch.ones(1, device="cuda") * rank
dist.all_reduce(one, group=halves[rank % 2])
assert float(one) == sum(r for r in range(ranks) if r % 2 == rank % 2)
print(f"rank {rank} done")
dist.destroy_process_group()
"""
)
SHARDED = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.ReLU(), torch.nn.Linear(50, 7))

def losses(net, device, mine):
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(5):
        x, y = torch.randn(4 * ranks, 30), torch.randn(4 * ranks, 7)
        part = slice(4 * rank, 4 * rank + 4) if mine else slice(None)
        loss = torch.nn.functional.mse_loss(net(x[part].to(device)), y[part].to(device))
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        if mine: loss = loss.detach(); dist.all_reduce(loss, dist.ReduceOp.AVG)
        yield float(loss)

net = model().cuda()
for layer in net: fully_shard(layer) if list(layer.parameters()) else None
fully_shard(net)
for sharded, whole in zip(list(losses(net, "cuda", True)), losses(model(), "cpu", False), strict=True):
    assert abs(sharded - whole) < 1e-4, (sharded, whole)
print(f"rank {rank} done")
dist.destroy_process_group()
"""
# patience ends after the first collective, however late the other rank came to it; where the watchdog gives the second
# up, PyTorch lets the program go on for a moment before it ends the process
ALONE = """
import datetime, os, signal, torch, torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(3, device="cuda")
dist.all_reduce(x)
print(x[0].item(), flush=True)
_set_pg_timeout(datetime.timedelta(seconds=3))
if not (rank == 1 and ABSENT): dist.all_reduce(x)
torch.cuda.synchronize()
signal.pause()
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_numbers_are_those_of_gloo_on_the_cpu(standin, ranks):
    done = standin(gpus=ranks, memory="4G").ranks(ranks, NUMBERS.replace("EAGER", "False"))
    assert done.stdout.count("done") == ranks, done.stderr


@pytest.mark.parametrize(("ranks", "eager"), [(2, False), (4, True)])
def test_messages_groups_and_parts_of_the_ranks(standin, ranks, eager):
    """With eager communicators PyTorch splits the first one for each new group."""
    done = standin(gpus=ranks, memory="4G").ranks(ranks, GROUPS.replace("EAGER", str(eager)))
    assert done.stdout.count("done") == ranks, done.stderr


@pytest.mark.parametrize("ranks", [2, 4])
def test_fsdp2_learns_what_one_process_on_the_cpu_learns(standin, ranks):
    done = standin(gpus=ranks, memory="4G").ranks(ranks, SHARDED)
    assert done.stdout.count("done") == ranks, done.stderr


@pytest.mark.parametrize(
    ("absent", "settings"), [(True, {}), (False, {"hang_after": 1})], ids=["a rank is absent", "the network hangs"]
)
def test_a_collective_that_does_not_end_is_ended_by_pytorchs_watchdog(standin, absent, settings):
    # how long the watchdog waits for a dump of every rank before it ends the process is 4 times this, else a minute
    dump = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}
    done = standin(gpus=2, memory="4G", **settings).ranks(2, ALONE.replace("ABSENT", str(absent)), **dump)
    # two ranks write to one pipe, and the ends of their lines may come later
    assert "".join(done.stdout.split()) == "2.02.0", done.stderr
    assert "Watchdog caught collective operation timeout" in done.stderr, done.stderr
    # nothing but the watchdog ends a rank: so the first one ended
    assert done.returncode == -signal.SIGABRT, done.stderr
