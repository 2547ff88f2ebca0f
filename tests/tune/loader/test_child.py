"""What the measuring process measures, called in this process."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from gpudoc.process.arguments import own_python
from gpudoc.tune.loader.child import (
    LoaderBench,
    TimedBatches,
    TimedCollate,
    TimedDataset,
    answer,
    describe,
    private_bytes,
)
from gpudoc.tune.loader.messages import AskCosts, LoaderAnswer, LoaderQuestion, Open, Opened
from gpudoc.tune.model.loader import LoaderSetting
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import decode, encode
from gpudoc.workload.build import load_workload
from gpudoc.workload.config import load_config

MODULE = """
import time, torch
class Slow(torch.utils.data.Dataset):
    seen = []
    def __len__(self): return 24
    def __getitem__(self, i):
        time.sleep(0.004)
        Slow.seen.append(i)
        return {"x": torch.full((3,), float(i)), "y": torch.tensor(1.0)}
class Net(torch.nn.Module):
    batches, made = [], []
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 1)
        Net.made.append(self)
    def forward(self, x, y):
        Net.batches.append(x[:, 0].tolist())
        return {"loss": ((self.line(x)[:, 0] - y) ** 2).mean()}
"""


@pytest.fixture
def order(tmp_path, request):
    name = f"slow_{abs(hash(request.node.name)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "c.yaml").write_text(f'model: {{target: "{name}:Net"}}\ndata: {{target: "{name}:Slow"}}\n')
    loaded = load_config(str(tmp_path / "c.yaml"))
    return Open(loaded=loaded, batch_size=4, device="cpu")


def net_of(bench):
    return sys.modules[bench.workload.config.model.target.split(":")[0]].Net


def test_a_sleep_in_the_data_set_is_waiting_and_not_cpu(order):
    costs = LoaderBench(order).costs(0.5)
    mean = costs.mean_batch_s
    assert mean >= 4 * 0.004
    assert costs.worker_cpu_s < mean / 2
    assert costs.batch_bytes == 4 * (3 + 1) * 4


def test_a_run_trains_on_every_sample_once_before_any_comes_again(order):
    bench = LoaderBench(order)
    answered = bench.run(LoaderSetting(num_workers=0), 5, 1.0)
    assert answered.steps == 5
    seen = [value for batch in net_of(bench).batches for value in batch]
    assert len(seen) == 4 * (2 + 5)
    assert sorted(seen[:24]) == [float(i) for i in range(24)]


def test_a_step_changes_the_weights_in_every_precision(order):
    for precision in ("fp32", "bf16"):
        bench = LoaderBench(order.model_copy(update={"variant": Variant(precision=precision)}))
        (*_, model) = net_of(bench).made
        before = model.line.weight.detach().clone()
        bench.run(LoaderSetting(num_workers=0), 0.01, 0.02)
        assert not torch.equal(before, model.line.weight)


def test_workers_deliver_the_same_batches(order):
    bench = LoaderBench(order)
    answered = bench.run(LoaderSetting(num_workers=2), 5, 1.0)
    seen = [value for batch in net_of(bench).batches for value in batch]
    assert answered.steps == 5
    assert len(seen) == 4 * (3 + 5)
    assert len(set(seen[:24])) == 24


def test_timed_samples_keep_their_values_and_order():
    data = [10, 20, 30]
    timed = TimedDataset(data)
    batch, note = TimedCollate(torch.tensor)([timed[i] for i in (2, 0)])
    assert batch.tolist() == [30, 10]
    assert len(note.sample_s) == 2
    assert note.cpu_s is None
    assert note.private_bytes > 0


def test_whole_batches_share_their_seconds():
    class Fetches:
        def __getitems__(self, indices):
            return [i * 2 for i in indices]

    timed = TimedBatches(Fetches()).__getitems__([3, 1])
    assert [value for value, _ in timed] == [6, 2]
    assert timed[0][1] == timed[1][1]


def test_a_failure_is_data_with_its_traceback():
    class Broken:
        def costs(self, seconds):
            raise RuntimeError("first line\nOriginal Traceback\nKeyError: 'label'")

    told = answer(Broken(), LoaderQuestion(asks=AskCosts(seconds=1))).says
    assert told.failure == "RuntimeError: KeyError: 'label'"
    assert "Original Traceback" in told.traceback
    assert describe(MemoryError()).failure.startswith("MemoryError")


def test_private_bytes_grow_with_what_is_allocated():
    before = private_bytes()
    # pages of their own: the heap may have as many free ones, which other tests left
    with mmap.mmap(-1, 32 << 20) as held:
        held.write(b"x" * (32 << 20))
        assert private_bytes() - before >= 24 << 20


def test_the_users_prints_do_not_disturb_the_answers(tmp_path):
    (tmp_path / "loud.py").write_text(
        textwrap.dedent("""
        import torch
        print("imported loudly")
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i):
                print("loud")
                return torch.ones(2), torch.ones(())
        def build(): return torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
        """)
    )
    (tmp_path / "c.yaml").write_text(
        'model: {target: "loud:build"}\ndata: {target: "loud:Data"}\nloss: {target: "torch.nn:MSELoss"}\n'
    )
    workload = load_workload(str(tmp_path / "c.yaml"))
    order = Open(loaded=load_config(str(tmp_path / "c.yaml")), batch_size=4, device="cpu")
    asked = [order, LoaderQuestion(asks=AskCosts(seconds=0.05))]
    done = subprocess.run(
        own_python(f"from gpudoc.tune.loader.child import main; sys.exit(main(sys.stdin, {os.getpid()}))"),
        input=b"".join(encode(message) + b"\n" for message in asked),
        capture_output=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    opened, costs = (decode(LoaderAnswer, line, "the child").says for line in done.stdout.splitlines())
    assert opened == Opened(num_samples=workload.num_samples, batch_size=4)
    assert costs.costs.batch_bytes == 4 * 3 * 4
    assert b"imported loudly" in done.stderr
