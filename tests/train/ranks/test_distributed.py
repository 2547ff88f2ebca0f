"""Ranks that are real processes under real torchrun, over gloo: votes, gradients, lost peers, restarts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.train.ranks.distributed import BUCKET_BYTES, buckets
from gpudoc.train.ranks.meeting import Place

ROOT = Path(__file__).resolve().parents[3]
HEAD = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from gpudoc.errors import GpudocError
from gpudoc.train.ranks.distributed import PeerLostError, join
from gpudoc.train.ranks.meeting import place_here
place = place_here()
out = Path(sys.argv[1])
"""
# a rank ends as gpudoc's ranks do
TAIL = """
from gpudoc.train.start.launch import exit_rank
exit_rank(0)
"""


def torchrun(
    folder: Path, body: str, *options: str, ranks: int = 2, arguments: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess:
    """Run a script under torchrun; it finds `place`, and `out` as a folder for what it wants to tell."""
    script = folder / "script.py"
    script.write_text(HEAD + textwrap.dedent(body) + TAIL)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--local-addr=127.0.0.1",
            f"--nproc-per-node={ranks}",
            *options,
            str(script),
            str(folder),
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def told(folder: Path, rank: int | str) -> dict:
    return json.loads((folder / f"{rank}.json").read_text())


def test_buckets_keep_order_and_types_apart():
    small, large = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(BUCKET_BYTES // 4))
    half = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    assert [len(b) for b in buckets([small, small, half, small, large, small])] == [2, 1, 1, 1, 1]
    assert list(buckets([])) == []


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """A folder where two ranks told what came of each exchange; then rank 1 went, and rank 0 waited for it."""
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(
        folder,
        """
        ranks = join(place, torch.device("cpu"))
        torch.manual_seed(place.rank)
        model = torch.nn.ModuleDict({k: torch.nn.Linear(2, 2) for k in ("both", "one", "none")})
        model.register_buffer("mean", torch.full((2,), float(place.rank)))
        ranks.wrap(model)
        weights = model["both"].weight.tolist()
        with ranks.accumulating(model, last=True):
            (model["both"].weight.sum() * (place.rank + 1)).backward()
            if place.rank == 1:
                model["one"].weight.sum().backward()
        votes = ranks.vote(2 if place.rank == 1 else 4)
        ranks.reduce_gradients(list(model.parameters()))
        model.mean += place.rank
        ranks.align_buffers(model)
        grads = {k: None if m.weight.grad is None else m.weight.grad[0, 0].item() for k, m in model.items()}
        ranks.barrier()
        told = {"weights": weights, "votes": votes, "grads": grads, "mean": model.mean.tolist(),
                "total": ranks.total([place.rank, 0.5]), "gather": ranks.gather({"rank": place.rank})}
        (out / f"{place.rank}.json").write_text(json.dumps(told))
        ranks.barrier()
        if place.rank == 1:
            sys.exit(0)
        try:
            ranks.barrier()
        except PeerLostError as problem:
            (out / "lost.json").write_text(json.dumps({"said": problem.message}))
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_two_ranks_vote_add_gather_and_average(two_ranks):
    first, second = told(two_ranks, 0), told(two_ranks, 1)
    assert first == second
    assert first["votes"] == 6
    assert first["grads"] == {"both": 1.5, "one": 0.5, "none": None}
    assert first["total"] == [1.0, 1.0]
    assert first["gather"] == [{"rank": 0}, {"rank": 1}]
    assert first["mean"] == [0.0, 0.0]


@pytest.mark.slow
def test_another_model_or_version_on_one_rank_is_named(tmp_path):
    done = torchrun(
        tmp_path,
        """
        import gpudoc
        from gpudoc.train.ranks import distributed
        ranks = join(place, torch.device("cpu"))
        found = {}
        try:
            ranks.wrap(torch.nn.Linear(2, 2 + place.rank))
        except GpudocError as problem:
            found["model"] = problem.message
        if place.rank == 1:
            gpudoc.__version__ = "9.9"
        try:
            distributed.check_versions(ranks)
        except GpudocError as problem:
            found["version"] = problem.message
        (out / f"{place.rank}.json").write_text(json.dumps(found))
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0)["model"] == "rank 1 has built a different model from rank 0"
    assert told(tmp_path, 0)["version"].endswith("rank 1 runs 9.9")
    assert "rank 1 runs gpudoc 9.9" in told(tmp_path, 1)["version"]


def test_a_rank_that_is_gone_is_noticed_and_named(two_ranks):
    said = told(two_ranks, "lost")["said"]
    assert said.startswith("another rank has ended: ")
    assert "pair.cc" not in said


@pytest.mark.slow
def test_a_rank_without_memory_for_the_exchange_says_so_and_the_other_is_not_left_waiting(tmp_path):
    done = torchrun(
        tmp_path,
        """
        import resource
        from gpudoc.train.ranks.distributed import AbandonedError

        ranks = join(place, torch.device("cpu"))
        # a small exchange first, for the code that it loads; gloo may hold a large one's memory a little longer
        small, weights = torch.nn.Parameter(torch.zeros(1000)), torch.nn.Parameter(torch.zeros(6_000_000))
        small.grad, weights.grad = torch.ones_like(small), torch.ones_like(weights)
        ranks.reduce_gradients([small])
        if place.rank == 1:
            used = int(next(row.split()[1] for row in open("/proc/self/status") if row.startswith("VmData"))) * 1024
            resource.setrlimit(resource.RLIMIT_DATA, (used + 4 * 2**20, resource.RLIM_INFINITY))
        try:
            ranks.reduce_gradients([weights])
        except (AbandonedError, PeerLostError) as problem:
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            (out / f"{place.rank}.json").write_text(json.dumps({"said": problem.message}))
        """,
        MALLOC_ARENA_MAX="1",
        MALLOC_MMAP_THRESHOLD_="1048576",
        MALLOC_TRIM_THRESHOLD_="1048576",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 1)["said"].startswith("out of memory while gradients were being exchanged")
    assert told(tmp_path, 0)["said"].startswith("another rank has ended")


@pytest.mark.slow
def test_a_rank_leaves_its_group_however_it_ends(tmp_path):
    done = torchrun(
        tmp_path,
        """
        import atexit
        import torch.distributed as dist

        # what is registered first runs last
        mark = out / f"{place.rank}.json"
        atexit.register(lambda: mark.write_text(json.dumps({"still in it": dist.is_initialized()})))
        join(place, torch.device("cpu")).barrier()
        sys.exit(0)
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0) == told(tmp_path, 1) == {"still in it": False}


@pytest.mark.parametrize(
    "disable",
    [pytest.param("0", marks=pytest.mark.slow), "1"],
    ids=["store kept by the agent", "store of the ranks"],
)
def test_ranks_meet_again_after_one_was_killed(tmp_path, disable):
    done = torchrun(
        tmp_path,
        """
        ranks = join(place, torch.device("cpu"))
        for step in range(10):
            total = ranks.total([1.0])
            if step == 5 and place.restarts == 0 and place.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        (out / f"{place.rank}.json").write_text(json.dumps({"restarts": place.restarts, "total": total}))
        ranks.leave()
        """,
        "--max-restarts=1",
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE=disable,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0) == told(tmp_path, 1) == {"restarts": 1, "total": [2.0]}


def test_ranks_without_an_address_are_told_what_is_missing(monkeypatch):
    from gpudoc.train.ranks.distributed import join

    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(GpudocError, match="MASTER_ADDR"):
        join(Place(rank=0, world=2, local_rank=0, local_world=1), torch.device("cpu"))


@pytest.mark.standin
def test_ranks_stay_equal_though_a_parameter_goes_without_a_gradient(standin, tmp_path):
    """Past probation: one is never used, one by rank 1 only. DDP would leave their bundle unreduced in step 51."""
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.ranks.distributed import PROBATION_STEPS
        device = torch.device("cuda", place.local_rank)
        ranks = join(place, device)
        torch.manual_seed(0)
        model = torch.nn.ModuleDict({k: torch.nn.Linear(2, 2) for k in ("both", "one", "none")}).to(device)
        model.forward = lambda x: model["both"](x) + (model["one"](x) if place.rank else 0)
        parallel = ranks.wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = torch.Generator().manual_seed(place.rank)
        for step in range(PROBATION_STEPS + 10):
            model.zero_grad()
            ranks.begin_step()
            for number in range(2):
                with ranks.accumulating(parallel, number == 1):
                    parallel(torch.randn(4, 2, generator=data).to(device)).square().mean().backward()
            ranks.vote(0)
            ranks.reduce_gradients(list(model.parameters()))
            optimizer.step()
        found = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
        (out / f"{place.rank}.json").write_text(json.dumps(found))
        ranks.leave()
        """,
        **standin(gpus=2).environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0) == told(tmp_path, 1)


OVERLAPPING = """
        from gpudoc.train.ranks import distributed
        from gpudoc.train.ranks.protocol import OOM
        distributed.PROBATION_STEPS = 2
        device = torch.device("cuda", place.local_rank)
        ranks = join(place, device)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to(device)
        model.forward = lambda x, whole=True: model[1](model[0](x)) if whole else model[0](x)
        parallel = ranks.wrap(model)
        said, overlapped = [], []

        def step(backwards):
            model.zero_grad()
            ranks.begin_step()
            overlapped.append(ranks.is_overlapping)
            for number, backward in enumerate(backwards):
                with ranks.accumulating(parallel, number == len(backwards) - 1):
                    if backward is None:
                        return ranks.vote(OOM)
                    backward(torch.ones(4, 2, device=device)).square().mean().backward()
            ranks.vote(0)
            ranks.reduce_gradients(list(model.parameters()))
"""


@pytest.mark.standin
def test_a_rank_that_fails_before_the_last_micro_batch_knows_that_the_others_exchange(standin, tmp_path):
    """It must not vote as if nothing were under way: the others' reduction would meet its next one."""
    done = torchrun(
        tmp_path,
        OVERLAPPING
        + """
        step([parallel, parallel])
        step([parallel, parallel])
        try:
            step([None, parallel] if place.rank else [parallel, parallel])
        except GpudocError as problem:
            said.append(problem.message)
        (out / f"{place.rank}.json").write_text(json.dumps({"said": said, "overlapped": overlapped}))
        # the other one waits in the exchange, and is ended as after any crash
        os._exit(1)
        """,
        **standin(gpus=2).environment,
    )
    assert (tmp_path / "1.json").exists(), done.stderr[-2000:]
    assert told(tmp_path, 1)["overlapped"] == [False, False, True]
    assert told(tmp_path, 1)["said"][0].startswith("out of memory while gradients were being exchanged")


@pytest.mark.standin
def test_a_parameter_that_goes_unused_only_after_probation_is_noticed_in_that_step(standin, tmp_path):
    done = torchrun(
        tmp_path,
        OVERLAPPING
        + """
        for _ in range(3):
            step([parallel])
        try:
            step([lambda x: parallel(x, not place.rank)])
        except distributed.UnusedError as problem:
            said.append(problem.message)
        (out / f"{place.rank}.json").write_text(json.dumps({"said": said}))
        os._exit(1)
        """,
        **standin(gpus=2).environment,
    )
    assert (tmp_path / "1.json").exists(), done.stderr[-2000:]
    assert "has none in this step" in told(tmp_path, 1)["said"][0]
