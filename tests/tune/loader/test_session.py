"""The measuring process: real ones, with data sets that fail, die, hang and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process import openmp
from gpudoc.process.openmp import OpenMp
from gpudoc.tune.loader import session as loader_session
from gpudoc.tune.loader.messages import Open
from gpudoc.tune.loader.session import LoaderSession, MeasurementError
from gpudoc.tune.model.loader import LoaderSetting
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import BrokenMessageError
from gpudoc.workload.config import load_config

MODULE = """
import os, signal, sys, time, torch

class Plain(torch.utils.data.Dataset):
    def __init__(self, size=64): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, i):
        print("the user's own print")
        return torch.full((4,), float(i)), torch.tensor(float(i % 2))

class Batched(Plain):
    def __getitems__(self, indices): return [Plain.__getitem__(self, i) for i in indices]

class Raises(Plain):
    def __getitem__(self, i): raise KeyError(f"no label for {i}")

class DiesInWorker(Plain):
    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        if info is not None and info.num_workers == 2: os.kill(os.getpid(), signal.SIGBUS)
        return super().__getitem__(i)

class KillsMain(Plain):
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is None: os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(i)

class Hangs(Plain):
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is None: time.sleep(1000)
        return super().__getitem__(i)

class HangsInWorkers(Plain):
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is not None: time.sleep(1000)
        return super().__getitem__(i)

def build(): return torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))

def broken(): raise ValueError("no such width")
"""
NONE, ONE, TWO = (LoaderSetting(num_workers=n) for n in range(3))


@pytest.fixture
def session(tmp_path):
    opened = []
    (tmp_path / "mine.py").write_text(MODULE)

    def open_session(dataset, *, model="build", batch_size=8, deadline=None, **variant) -> LoaderSession:
        config = tmp_path / f"{dataset}.yaml"
        config.write_text(
            f'model: {{target: "mine:{model}"}}\ndata: {{target: "mine:{dataset}"}}\n'
            'loss: {target: "torch.nn:MSELoss"}\n'
        )
        opened.append(
            LoaderSession(
                Open(
                    loaded=load_config(str(config)),
                    batch_size=batch_size,
                    device="cpu",
                    variant=Variant(**variant),
                ),
                deadline=deadline,
            )
        )
        return opened[-1]

    yield open_session
    for one in opened:
        one.close()
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_costs_and_runs_are_measured_on_the_users_data(session, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(openmp, "own_openmp", lambda: OpenMp("libgomp"))
    before = psutil.Process().children()
    with session("Plain", batch_size=8, precision="bf16", allocator="exact", wait_policy="passive") as asked:
        costs = asked.costs(0.3)
        (process,) = [one for one in psutil.Process().children() if one not in before]
        # as training will start with these settings
        environment = process.environ()
        assert (environment["OMP_WAIT_POLICY"], environment["MALLOC_ARENA_MAX"]) == ("passive", "1")
        assert (asked.num_samples, asked.batch_size) == (64, 8)
        assert costs.batch_bytes == 8 * 5 * 4
        assert len(costs.batch_s) == 200
        assert min(costs.batch_s) > 0
        assert costs.step_s > 0
        assert costs.worker_cpu_s > 0
        assert costs.worker_private_bytes > 1 << 20
        for setting in (NONE, TWO):
            run = asked.run(setting, seconds=20, period_s=1.0)
            assert run.steps == 20
            assert run.step_s > 0
            assert run.start_s > 0
            assert run.restart_s > 0
            assert 0 <= run.wait_share <= 1


def test_a_data_set_may_fetch_whole_batches_and_a_batch_larger_than_it_is_the_data_set(session):
    with session("Batched", batch_size=1000) as asked:
        assert asked.costs(0.2).mean_batch_s > 0
        assert asked.batch_size == 64


def test_the_users_error_comes_with_the_users_traceback(session):
    with session("Raises") as asked, pytest.raises(GpudocError) as caught:
        asked.costs(0.2)
    assert "no label for" in caught.value.message
    assert "mine.py" in caught.value.hint
    assert caught.value.exit_code == ExitCode.BAD_ANSWER


def test_a_process_that_answers_something_else_is_named_with_its_words(session, monkeypatch):
    monkeypatch.setattr(loader_session, "_CHILD", "print('good morning', flush=True); sys.stdin.read()")
    with (
        session("Plain") as asked,
        pytest.raises(BrokenMessageError, match=r"measures loaders \(pid \d+\) sent .*'good m"),
    ):
        asked.costs(0.2)


def test_a_model_that_fails_is_reported_at_once(session):
    with session("Plain", model="broken") as asked, pytest.raises(GpudocError, match="no such width"):
        asked.costs(0.2)


def test_a_worker_that_dies_costs_that_setting_only(session):
    with session("DiesInWorker") as asked:
        asked.costs(0.2)
        with pytest.raises(MeasurementError, match="killed by signal: Bus error"):
            asked.run(TWO, seconds=0.1, period_s=0.01)
        # on a busy machine fewer steps than ten fit into the time
        assert asked.run(ONE, seconds=0.1, period_s=0.01).steps > 0


@pytest.mark.slow
def test_a_measuring_process_that_dies_is_named_by_its_signal_and_started_again(session):
    with session("KillsMain") as asked:
        asked.costs(0.2)
        with pytest.raises(MeasurementError, match="SIGSEGV"):
            asked.run(NONE, seconds=0.1, period_s=0.01)
        # on a busy machine fewer steps than ten fit into the time
        assert asked.run(ONE, seconds=0.1, period_s=0.01).steps > 0


@pytest.mark.slow
def test_a_hang_ends_at_its_deadline(session, monkeypatch):
    with session("Hangs") as asked:
        asked.costs(0.2)
        monkeypatch.setattr(loader_session, "RUN_GRACE_SECONDS", 2.0)
        with pytest.raises(MeasurementError, match="no answer within"):
            asked.run(NONE, seconds=0.01, period_s=0.001)
        # on a busy machine fewer steps than ten fit into the time
        assert asked.run(ONE, seconds=0.1, period_s=0.01).steps > 0


@pytest.mark.slow
def test_workers_that_hang_cost_a_third_of_the_time_that_is_left_and_the_rest_still_runs(session):
    with session("HangsInWorkers") as asked:
        assert asked.run(NONE, seconds=0.1, period_s=0.01).steps
        asked._deadline = Deadline(budget_s=9.0)
        with pytest.raises(MeasurementError, match="no answer within 3 s") as caught:
            asked.run(TWO, seconds=0.1, period_s=0.01)
        assert (caught.value.hangs, caught.value.is_late) == (True, False)
        asked._deadline = Deadline(budget_s=0.0)
        with pytest.raises(MeasurementError) as caught:
            asked.run(NONE, seconds=0.1, period_s=0.01)
        assert caught.value.is_late


def test_nothing_survives_a_killed_parent(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE.replace("class Plain", "class Fast").replace("Plain", "Fast"))
    (tmp_path / "c.yaml").write_text(
        'model: {target: "mine:build"}\ndata: {target: "mine:Fast"}\nloss: {target: "torch.nn:MSELoss"}\n'
    )
    script = textwrap.dedent("""
        import sys
        from gpudoc.tune.model.loader import LoaderSetting
        from gpudoc.tune.loader.session import LoaderSession
        from gpudoc.tune.loader.messages import Open
        from gpudoc.workload.config import load_config
        asked = LoaderSession(Open(loaded=load_config(sys.argv[1]), batch_size=8, device="cpu"))
        asked.costs(0.1)
        print(asked._child.process.pid, flush=True)
        while True:
            asked.run(LoaderSetting(num_workers=2), seconds=5, period_s=0.001)
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "c.yaml")], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert parent.stdout is not None
    group = int(parent.stdout.readline())
    parent.stdout.close()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    until = time.monotonic() + 60
    while time.monotonic() < until and _alive_in(group):
        time.sleep(0.2)
    assert not _alive_in(group)


def _alive_in(group: int) -> list[int]:
    def belongs(process: psutil.Process) -> bool:
        try:
            return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False

    return [process.pid for process in psutil.process_iter() if belongs(process)]
