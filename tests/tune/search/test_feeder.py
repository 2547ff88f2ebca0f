from types import SimpleNamespace

import pytest

from gpudoc.progress import SILENT
from gpudoc.tune.findings import Findings
from gpudoc.tune.search import feeder
from gpudoc.tune.search.choose import BatchChoice
from gpudoc.tune.search.feeder import Feeder
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.launcher import Where
from gpudoc.workload.config import load_config
from tests.tune.planted import write_workload

PLAN = SimpleNamespace(parts={"batch", "loader"})


def test_the_loader_is_measured_once_and_then_comes_from_the_journal(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_config(str(write_workload(tmp_path)))
    where = Where(device="cpu", limit_bytes=1 << 30)
    session = Session(
        runner=WorkloadRunner(launcher=None, where=where), journal=Journal(None), progress=SILENT, budget_s=10.0
    )
    first = Findings(choice=BatchChoice(64, None, ""))
    Feeder(loaded)(session, PLAN, first)
    assert first.feed_reasons
    assert first.feed.num_workers >= 0
    rows = first.feed_trials[0].loaders
    assert rows
    assert all(row.samples_per_s > 0 and 0 <= row.wait_share <= 1 for row in rows)
    monkeypatch.setattr(feeder, "tune_loader", lambda *a, **k: pytest.fail("measured twice"))
    second = Findings(choice=BatchChoice(64, None, ""))
    Feeder(loaded)(session, PLAN, second)
    assert second.feed == first.feed
