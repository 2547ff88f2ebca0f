"""Sharded ranks over gloo on the CPU: the same training as one process, and checkpoints that one process reads."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import load_file

from gpudoc.train.ranks.fsdp import council_of, must_shard, spread_like
from gpudoc.train.ranks.protocol import Alone, own_part, whole
from gpudoc.train.start.identity import digest
from gpudoc.train.state import checkpoint
from gpudoc.train.state.restore import load
from tests.standin.gpus import IS_STANDIN
from tests.train.ranks.test_distributed import told, torchrun
from tests.train.start.test_place import CONFIG, MODULE
from tests.train.support import metrics, train_here

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


def test_sharded_ranks_train_as_one_process_does(forked, tmp_path):
    done = forked.run(
        tmp_path,
        """
        from gpudoc.train.ranks.protocol import own_part, whole
        from gpudoc.train.ranks.fsdp import Sharded, spread_model, spread_optimizer
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
                ranks.begin_step()
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
        # one process continues from the full tensors; and other ranks from the same
        read = build(); read.load_state_dict(full); make(read).load_state_dict(state)
        torch.manual_seed(5)
        from gpudoc.workload.config import Fsdp
        # gathered otherwise, the numbers are the same
        ranks = Sharded(place, torch.device("cpu"), Fsdp(reshard="never", prefetch=2, reduce="weights"))
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


@pytest.mark.slow
def test_a_sharded_rank_that_runs_out_of_memory_ends_instead_of_voting(forked, tmp_path):
    done = forked.run(
        tmp_path,
        """
        from gpudoc.train.ranks.fsdp import Sharded
        join(place, torch.device("cpu"))
        ranks = Sharded(place, torch.device("cpu"))
        model = ranks.wrap(torch.nn.Linear(4, 4))
        ranks.begin_step()
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
    assert told(tmp_path, 1)["said"].startswith("another rank has ended")


SHARDED_RUN = """
    from gpudoc.train.ranks import fsdp
    from gpudoc.train.events import Said
    from gpudoc.train.request import TrainRequest
    from gpudoc.train.run import run
    from gpudoc.train.settings import parse_flags
    fsdp.must_shard = lambda *_, **__: True
    flags = parse_flags({"steps": int(sys.argv[2])}, [])
    request = TrainRequest(model=str(out / "c.yaml"), profile="off", device="cpu", flags=flags, run_dir=out / "run")
    said = [event.text for event in run(request) if isinstance(event, Said)]
    (out / f"{place.rank}.json").write_text(json.dumps(said))
    """


def write_run(folder):
    (folder / "ranked.py").write_text(MODULE)
    (folder / "c.yaml").write_text(
        CONFIG.format(sleep=0.0, oom_at=-1, raise_at=-1, most=99)
        .replace("SGD", "AdamW")
        .replace(", momentum: 0.9", "")
        .replace("precision: fp32", "precision: fp32, grad_clip: 0.5")
    )


def state_of(run, step):
    """Everything in a checkpoint that a resumed run must reproduce, as one digest."""
    loaded = load(run / "checkpoints" / f"step-{step}")
    kept = {key: value for key, value in loaded.state.items() if key not in ("seconds", "final_loss")}
    return digest([dict(loaded.model), dict(loaded.optimizer), kept, dict(loaded.rng(0)), dict(loaded.rng(1))])


@pytest.mark.slow
def test_a_sharded_run_is_saved_in_parts_and_goes_on_sharded_or_alone(forked, tmp_path, capfd):
    """Sharded steps 1 to 4, sharded 5 to 7, one process 8 to 12: the weights of one process all the way."""
    write_run(tmp_path)
    line = ("--model", "c.yaml", "--profile", "off", "--no-preflight")
    assert train_here(tmp_path, *line, "--run-dir", "alone") == 0
    for steps in ("4", "7"):
        done = forked.run(tmp_path, SHARDED_RUN, arguments=(steps,))
        assert done.returncode == 0, done.stderr[-3000:]
        assert any("spread over 2 processes (FSDP2)" in text for text in told(tmp_path, 0))
    assert any("continues from step-4" in text for text in told(tmp_path, 0))
    # the last one holds a whole file as well, one in between only the shards
    kept = dict(checkpoint.found_in(tmp_path / "run" / "checkpoints"))
    assert len(kept) == 2
    assert max(kept) == 7
    assert all((path / "model.safetensors").exists() == (step in (4, 7)) for step, path in kept.items())
    assert all((path / "dcp" / "__1_0.distcp").exists() for path in kept.values())
    parts, weights = load(kept[7]).model, load_file(kept[7] / "model.safetensors")
    assert digest(dict(sorted(parts.items()))) == digest(dict(sorted(weights.items())))
    capfd.readouterr()
    assert train_here(tmp_path, *line, "--run-dir", "run", "--steps", "12") == 0
    assert "2 -> 1 processes" in capfd.readouterr().err
    alone, sharded = (
        load_file(tmp_path / run / "checkpoints" / "step-12" / "model.safetensors") for run in ("alone", "run")
    )
    assert alone.keys() == sharded.keys()
    assert all((alone[name] - sharded[name]).abs().max() < 1e-5 for name in alone)


@pytest.mark.slow
def test_a_sharded_run_in_two_pieces_is_the_run_in_one(forked, tmp_path):
    """Bit for bit; the second piece begins at the older checkpoint, since a shard of the newer one is damaged."""
    found = {}
    for pieces in (("9",), ("7", "9")):
        folder = tmp_path / str(len(pieces))
        folder.mkdir()
        write_run(folder)
        for steps in pieces:
            done = forked.run(folder, SHARDED_RUN, arguments=(steps,))
            assert done.returncode == 0, done.stderr[-3000:]
            shard = folder / "run" / "checkpoints" / "step-7" / "dcp" / "__1_0.distcp"
            if steps == "7":
                data = bytearray(shard.read_bytes())
                data[len(data) // 2] ^= 1
                shard.write_bytes(data)
        found[len(pieces)] = state_of(folder / "run", 9)
    said = told(tmp_path / "2", 0)
    assert any("step-7 is not used: dcp/__1_0.distcp: its sha256" in text for text in said)
    # a save that comes due while the last one is written waits for the next step, so which one it is may differ
    assert any(re.search(r"continues from step-[2-6] ", text) for text in said)
    assert found[1] == found[2]


def test_shards_are_not_looked_for_where_nothing_is_sharded():
    with pytest.raises(AssertionError):
        council_of(Alone())


@pytest.mark.gpu
def test_two_gpus_shard_over_nccl(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.ranks.protocol import whole
        from gpudoc.train.ranks.fsdp import Sharded
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
        join(place, device)
        ranks = Sharded(place, device)
        torch.manual_seed(0)
        with device:
            model = ranks.wrap(torch.nn.Linear(64, 64))
        before = whole(model.weight).clone()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        ranks.begin_step()
        with ranks.accumulating(model, True):
            model(torch.ones(4, 64, device=device)).square().mean().backward()
        ranks.reduce_gradients([])
        optimizer.step()
        moved = (whole(model.weight) - before).abs().max().item()
        from gpudoc.train.state import checkpoint
        from gpudoc.train.state.restore import load
        from gpudoc.train.state.shards import capture, read_into, write_together
        from gpudoc.train.state.staging import Staging
        staging = Staging(device)
        spread, state = capture(model, optimizer, ranks.council, staging)
        staging.finish().wait()
        content = checkpoint.Content(step=1, model={}, optimizer=state, state={"step": 1}, rng={}, shards=spread)
        path = write_together(out / "checkpoints", content, ranks.council, keep=())
        expected = whole(model.weight).clone()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        loaded = load(path, parts=True)
        read_into(path, model, optimizer, loaded.optimizer, ranks.council)
        same = bool(torch.equal(whole(model.weight), expected)) and spread["model.weight"].to_local().is_pinned()
        report = {"moved": moved, "total": ranks.total([1.0]), "same": same}
        (out / f"{place.rank}.json").write_text(json.dumps(report))
        ranks.leave()
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(tmp_path, 0) == told(tmp_path, 1)
    assert told(tmp_path, 0)["moved"] > 0
    assert told(tmp_path, 0)["same"]


@pytest.mark.standin
def test_two_gpus_hold_half_of_everything_and_a_few_blocks_in_bf16(standin, tmp_path):
    """Eight blocks of 4 MiB in fp32, 64 MiB of weights, gradients and state on each GPU; no whole gradients between."""
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.ranks.fsdp import Sharded
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
        join(place, device)
        ranks = Sharded(place, device)
        # cuBLAS's workspaces, one for each thread
        with torch.autocast("cuda", torch.bfloat16):
            torch.nn.Linear(8, 8, device=device)(torch.ones(8, 8, device=device)).sum().backward()
        before = torch.cuda.memory_allocated(device)
        block = lambda: torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False), torch.nn.Tanh())
        model = ranks.wrap(torch.nn.Sequential(*[block() for _ in range(8)]), torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        for step in range(2):
            ranks.begin_step()
            for number in range(2):
                with ranks.accumulating(model, number == 1), torch.autocast("cuda", torch.bfloat16):
                    model(torch.ones(2, 1024, device=device)).float().square().mean().backward()
            ranks.reduce_gradients([])
            optimizer.step()
            optimizer.zero_grad()
        peak = (torch.cuda.max_memory_allocated(device) - before) / 2**20
        (out / f"{place.rank}.json").write_text(json.dumps({"peak": peak}))
        ranks.leave()
        """,
        **standin(gpus=2).environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert 64 < told(tmp_path, 0)["peak"] < 64 + 3 * 4
    assert told(tmp_path, 0) == told(tmp_path, 1)


@pytest.mark.standin
def test_gathered_weights_stay_from_the_fourth_step_on_where_the_memory_that_was_measured_has_room(standin, tmp_path):
    """Eight blocks of 2 MiB in bf16: all of them at once, or two or three; by the rank that may have the least."""
    done = torchrun(
        tmp_path,
        """
        from gpudoc.train.ranks.fsdp import Sharded
        from gpudoc.workload.config import Fsdp
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
        join(place, device)
        block = lambda: torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False), torch.nn.Tanh())
        def peaks(limit_bytes, **how):
            ranks = Sharded(place, device, Fsdp(**how), limit_bytes)
            model = ranks.wrap(torch.nn.Sequential(*[block() for _ in range(8)]), torch.bfloat16)
            found = []
            for step in range(5):
                torch.cuda.reset_peak_memory_stats(device)
                ranks.begin_step()
                with ranks.accumulating(model, True), torch.autocast("cuda", torch.bfloat16):
                    out = model(torch.ones(2, 1024, device=device))
                    # all gathers of forward are over, and nothing of backward is there
                    found.append(torch.cuda.memory_allocated(device) / 2**20)
                    out.float().square().mean().backward()
                ranks.reduce_gradients([])
            return found
        mib = 2**20
        told = {
            "room": peaks(1000 * mib),
            "none": peaks(1000 * mib, reshard="always"),
            "one rank": peaks(1000 * mib if place.rank else 60 * mib),
        }
        (out / f"{place.rank}.json").write_text(json.dumps(told))
        ranks = Sharded(place, device)
        ranks.leave()
        """,
        **standin(gpus=2).environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for rank in (0, 1):
        found = told(tmp_path, rank)
        # the last block's weights are there in any case, until their gradients are
        assert found["room"][4] - found["room"][2] == pytest.approx(7 * 2, abs=2.5)
        for name in ("none", "one rank"):
            assert found[name][4] - found[name][2] == pytest.approx(0, abs=0.5)


GPU_RUN = """
    from gpudoc.train.ranks import fsdp
    from gpudoc.train.request import TrainRequest
    from gpudoc.train.run import run
    from gpudoc.train.settings import parse_flags
    fsdp.must_shard = lambda *_, **__: True
    request = TrainRequest(model=str(out / "c.yaml"), profile="off", device="cuda", preflight=False,
                      run_dir=out / f"run{os.environ['WORLD_SIZE']}")
    *_, last = run(request)
    sys.exit(last.exit_code)
    """


@pytest.mark.standin
@pytest.mark.gpu
@pytest.mark.skipif(not IS_STANDIN and torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize(
    "precision",
    [
        "fp32",
        "bf16",
        "bf16, fsdp: {reduce: weights}",
        "fp32, fsdp: {reshard: never, prefetch: 2}",
        "fp32, fsdp: {offload: true}",
    ],
    ids=["fp32", "bf16", "narrow sums", "kept and ahead", "offload"],
)
def test_two_gpus_that_shard_have_the_losses_of_one(standin, tmp_path, precision):
    write_run(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(config.read_text().replace("precision: fp32", f"precision: {precision}"))
    found = []
    for ranks in (1, 2):
        done = torchrun(tmp_path, GPU_RUN, ranks=ranks, **standin(gpus=ranks).environment)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append([row["loss"] for row in metrics(tmp_path / f"run{ranks}") if "loss" in row])
    assert (tmp_path / "run2/checkpoints/step-12/dcp").exists()
    # a real card adds up in another order
    exact = 1e-5 if IS_STANDIN else 1e-3
    assert found[0] == pytest.approx(found[1], rel=2e-2 if precision.startswith("bf16") else exact)
