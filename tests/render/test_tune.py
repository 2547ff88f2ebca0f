import pytest

from gpudoc.profile.model import Evidence, Hardware, Made, Profile, Settings, WorkloadKey
from gpudoc.profile.model import Trial as Row
from gpudoc.render.tune import as_text, train_command
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.record import Context
from gpudoc.tune.run import Result
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.search.stages import Findings
from gpudoc.tune.trial.messages import End, Point, Request, Trial
from gpudoc.workload.config import load_config


@pytest.fixture
def result(tmp_path):
    line = MemoryLine(batch=118, peak_bytes=950 << 20, bytes_per_sample=5 << 20)
    largest = Largest(
        batch=118, cap=5000, limit_bytes=1 << 30, line=line, fails_at=119, fails_with=End.OOM_HOST, predicted=118
    )
    rows = (
        Row(kind="fit", batch=118, fits=True, peak_bytes=950 << 20, seconds=2.0),
        Row(kind="fit", batch=119, fits=False, end="oom_host", seconds=1.0),
    )
    profile = Profile(
        made=Made(at="2026-01-01T00:00:00+00:00", gpudoc="0.1.0", seconds=41.2, trials=2),
        hardware=Hardware(device="cpu", name="<a CPU>", torch="2.13.0"),
        workload=WorkloadKey(config="quickstart", model="abc"),
        settings=Settings(precision="fp32", micro_batch=64),
        evidence=Evidence(largest_batch=118, fastest_batch=64, trials=rows, speedup_over_default=1.87),
        why=("micro_batch 64: because",),
    )
    points = tuple(Point(batch=b, step_s=(0.1 + 0.01 * b,)) for b in (16, 64))
    context = Context(
        config=load_config("quickstart"),
        hardware=profile.hardware,
        workload=profile.workload,
        device="cpu",
        limit_bytes=1 << 30,
        user_limit_bytes=None,
        seconds=41.2,
    )
    findings = Findings(largest=largest, speeds=points)
    return Result(profile=profile, path=tmp_path / "p.yaml", findings=findings, journal=Journal(None), context=context)


def test_the_screen_shows_three_batches_reasons_and_the_next_command(result):
    text = as_text(result)
    assert "2 trials in 41.2 s, 1.87 times the default's speed" in text
    for word in ("largest      118  proved", "fastest       64", "chosen        64", "micro_batch 64: because"):
        assert word in text
    assert text.endswith(train_command(result))
    assert "119" not in text
    assert "119" in as_text(result, verbose=True)


def test_every_trial_says_how_its_processes_were_started(result):
    request = Request(kind="fit", batches=(8,))
    result.journal.add(Trial(request=request, end=End.FITS))
    assert "every trial, forked from a process that had imported" in as_text(result, verbose=True)
    result.journal.add(Trial(request=request, end=End.FITS, how="exec"))
    assert "every trial, in processes that imported for themselves" in as_text(result, verbose=True)
