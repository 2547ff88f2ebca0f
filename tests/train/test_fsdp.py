"""Sharded ranks over gloo on the CPU: the same training as one process, and checkpoints that one process reads."""

from __future__ import annotations

import pytest
import torch

from gpudoc.train.fsdp import must_shard, own_part, spread_like, whole
from tests.train.test_distributed import told, torchrun

GIB = 2**30


def test_a_model_is_sharded_when_weights_gradients_and_state_fill_the_device():
    with torch.device("meta"):
        model = torch.nn.Linear(16384, 16384, bias=False)  # 1 GiB of float32
    assert must_shard(model, "AdamW", 4 * GIB)
    assert not must_shard(model, "AdamW", 5 * GIB)
    assert must_shard(model, "SGD", 3 * GIB)
    assert not must_shard(model, "SGD", 4 * GIB)
    assert not must_shard(model, "AdamW", None)
    model.weight.requires_grad_(False)
    assert not must_shard(model, "AdamW", 2 * GIB)


def test_plain_tensors_stay_as_they_are():
    tensor = torch.ones(2)
    assert whole(tensor) is tensor
    assert own_part(tensor) is tensor
    assert spread_like(tensor, torch.zeros(2)) is tensor


def test_sharded_ranks_train_as_one_process_does(tmp_path):
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.fsdp import Sharded, own_part, spread_model, spread_optimizer, whole
        joined = join(place, torch.device("cpu"))
        ranks = Sharded(place, torch.device("cpu"))
        block = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        build = lambda: torch.nn.Sequential(block(), block(), block())
        torch.manual_seed(0)
        alone = build()
        torch.manual_seed(0)
        model = ranks.wrap(build())
        parts = [own_part(p).numel() for p in model.parameters()]
        make = lambda m: torch.optim.AdamW(m.parameters(), lr=0.01)
        optimizer, other = make(model), make(alone)
        data = torch.Generator().manual_seed(1)
        def train(steps):
            for _ in range(steps):
                x = torch.randn(8, 8, generator=data)
                mine = x[4 * place.rank : 4 * place.rank + 4]
                for number in range(2):
                    with ranks.accumulating(model, number == 1):
                        (model(mine[2 * number : 2 * number + 2]) ** 2).mean().div(2).backward()
                ranks.reduce_gradients(list(model.parameters()))
                (alone(x) ** 2).mean().backward()
                for one in (optimizer, other):
                    one.step(); one.zero_grad()
        train(3)
        full = {k: whole(v).detach().clone() for k, v in model.state_dict().items()}
        state = optimizer.state_dict()
        rows = {n: {k: whole(v).clone() for k, v in row.items()} for n, row in state["state"].items()}
        state = {**state, "state": rows}
        worst = max((full[k] - v).abs().max().item() for k, v in alone.state_dict().items())
        # one process goes on from the full tensors; and other ranks from the same
        read = build(); read.load_state_dict(full); make(read).load_state_dict(state)
        torch.manual_seed(5)
        again = ranks.wrap(build())
        again.load_state_dict(spread_model(again, full))
        resumed = make(again)
        resumed.load_state_dict(spread_optimizer(resumed, state))
        model, optimizer = again, resumed
        train(2)
        later = max((whole(v) - alone.state_dict()[k]).abs().max().item() for k, v in model.state_dict().items())
        found = torch.tensor(float(place.rank))
        ranks.agree_on_worst(found)
        told = {"parts": sum(parts), "all": sum(p.numel() for p in alone.parameters()), "worst": worst,
                "later": later, "found": found.item()}
        (out / f"{place.rank}.json").write_text(json.dumps(told))
        ranks.leave()
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = told(tmp_path, 0), told(tmp_path, 1)
    assert first["parts"] + second["parts"] == first["all"]
    for found in (first, second):
        assert found["worst"] < 1e-6
        assert found["later"] < 1e-6
        assert found["found"] == 1.0


def test_a_sharded_rank_that_runs_out_of_memory_ends_instead_of_voting(tmp_path):
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.fsdp import Sharded
        join(place, torch.device("cpu"))
        ranks = Sharded(place, torch.device("cpu"))
        model = ranks.wrap(torch.nn.Linear(4, 4))
        with ranks.accumulating(model, True):
            model(torch.ones(1, 4)).sum().backward()
        try:
            ranks.vote(1 if place.rank == 0 else 0)
        except GpudocError as problem:
            (out / f"{place.rank}.json").write_text(json.dumps({"said": problem.message}))
        os._exit(0)
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0)["said"].startswith("out of memory while gradients were being exchanged")
    assert told(tmp_path, 1)["said"].startswith("another rank is gone")


@pytest.mark.gpu
def test_two_gpus_shard_over_nccl(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.fsdp import Sharded, whole
        device = torch.device("cuda", place.local_rank)
        join(place, device)
        ranks = Sharded(place, device)
        torch.manual_seed(0)
        with device:
            model = ranks.wrap(torch.nn.Linear(64, 64))
        before = whole(model.weight).clone()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        with ranks.accumulating(model, True):
            model(torch.ones(4, 64, device=device)).square().mean().backward()
        ranks.reduce_gradients([])
        optimizer.step()
        moved = (whole(model.weight) - before).abs().max().item()
        (out / f"{place.rank}.json").write_text(json.dumps({"moved": moved, "total": ranks.total([1.0])}))
        ranks.leave()
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0) == told(tmp_path, 1)
    assert told(tmp_path, 0)["moved"] > 0
