import dataclasses

import pytest

from gpudoc.profile import store
from gpudoc.profile.merge import Merged
from gpudoc.profile.model import (
    Hardware,
    Loader,
    LossDeviation,
    Made,
    Profile,
    ProfileEvidence,
    Settings,
    VariantTrial,
    WorkloadKey,
)
from gpudoc.profile.model import ProfileTrial as Row
from gpudoc.render.tune import as_text, headline, show, train_command
from gpudoc.tune.findings import AUTO_CEILING, Findings
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.record import Context
from gpudoc.tune.run import TuneResult, document
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest
from gpudoc.workload.config import load_config
from tests.terminal import shown


def fed(batch, *step_s):
    return Trial(
        request=TrialRequest(kind="joint", batches=(batch,)), end=End.FITS, points=(Point(batch=batch, step_s=step_s),)
    )


@pytest.fixture
def result(tmp_path):
    line = MemoryLine(batch=118, peak_bytes=950 << 20, bytes_per_sample=5 << 20)
    largest = Largest(
        batch=118, cap=5000, limit_bytes=1 << 30, line=line, fails_at=119, fails_with=End.OOM_HOST, predicted=118
    )
    plain = Settings(precision="fp32", micro_batch=32)
    rows = (
        Row(kind="fit", batch=118, fits=True, peak_bytes=950 << 20, seconds=2.0),
        Row(kind="fit", batch=119, fits=False, end="oom_host", seconds=1.0),
    )
    profile = Profile(
        made=Made(at="2026-01-01T00:00:00+00:00", gpudoc="0.1.0", seconds=41.2, trials=12),
        hardware=Hardware(device="cpu", name="<a CPU>", torch="2.13.0", instructions="AVX2"),
        workload=WorkloadKey(config="quickstart", model="abc"),
        settings=Settings(precision="bf16", micro_batch=64, loader=Loader(num_workers=2)),
        evidence=ProfileEvidence(
            largest_batch=118,
            fastest_batch=64,
            trials=rows,
            default=Row(kind="default", batch=32, fits=True, settings=plain),
            speedup_over_default=1.87,
        ),
        why=(f"micro_batch 64: because; a larger one would exceed {AUTO_CEILING}", "precision bf16: because"),
    )
    context = Context(
        config=load_config("quickstart"),
        hardware=profile.hardware,
        workload=profile.workload,
        device="cpu",
        limit_bytes=1 << 30,
        user_limit_bytes=None,
        seconds=41.2,
    )
    findings = Findings(
        largest=largest,
        speeds=tuple(Point(batch=b, step_s=(0.1 + 0.01 * b,)) for b in (16, 64)),
        defaults=[fed(32, 0.0142, 0.0144)],
        joints=[fed(64, 0.0152, 0.0153)],
    )
    path = store.folder_to_write() / "p.yaml"
    stored = Merged(profile=profile, path=path)
    return TuneResult(profile=profile, stored=stored, findings=findings, journal=Journal(None), context=context)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_what_stays_on_the_screen_is_a_short_summary_with_one_speed(result, columns, colour):
    screen = shown(lambda: show(result, as_json=False, plain=False, verbose=False), columns, colour)
    assert screen.code == 0
    assert len(screen.lines) <= 20
    assert screen.coloured is not bool(colour)
    text = " ".join(screen.text.split())
    assert text.startswith(
        "✓ 1.88 times (1.86 to 1.89) as fast as your default: 4,183 samples/s ±1 % with your data, 2,222 "
    )
    assert screen.text.count("samples/s") == 2
    for row in (
        "  micro batch       64  (default 32)",
        "  precision       bf16  (default fp32)",
        "  loader workers     2  (default 0)",
        "  largest batch 118, 950 MiB of 1 GiB: it ran, and 119 did not fit",
    ):
        assert row in screen.lines
    assert "12 trials in 41.2 s on <a CPU>, AVX2; why each setting" in text
    assert "the micro batch is at what global_batch: auto allows" in text
    assert screen.lines[-1] == "next     gpudoc train --model quickstart"
    assert screen.raw.count("\n") <= len(screen.lines) + 1


def with_levers(result):
    losses = {"steps": 5, "bound": 0.02}
    rows = (
        VariantTrial(
            name="bf16",
            changes={"precision": "bf16"},
            times=1.824,
            losses=LossDeviation(difference=0.0031, **losses),
            kept=True,
            why="bf16: 1.82 times the speed, because",
        ),
        VariantTrial(
            name="the optimizer without its fused kernel",
            changes={"fused": False},
            times=1.2,
            losses=LossDeviation(difference=None, **losses),
            why="the optimizer without its fused kernel: because",
            rejected="it trains differently",
        ),
        VariantTrial(
            name="torch.compile",
            changes={"compile": True},
            why="torch.compile: rejected, it failed in first steps: no C++ compiler was found on this machine at all",
        ),
    )
    evidence = result.profile.evidence.model_copy(update={"variants": rows})
    profile = result.profile.model_copy(update={"evidence": evidence})
    return dataclasses.replace(result, profile=profile, stored=Merged(profile=profile, path=result.path))


def test_every_lever_that_was_tried_is_a_row_with_its_speed_and_how_far_its_losses_differ(result):
    assert "lever" not in as_text(result)
    lines = as_text(with_levers(result), width=80).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("  lever, "))
    assert [" ".join(line.split()) for line in lines[start : start + 6]] == [
        "lever, on top of what was kept speed losses differ allowed",
        "bf16 x 1.82 0.31 % 2 % kept",
        "the optimizer without its fused kernel x 1.20 not finite 2 %",
        "not used: it trains differently",
        "torch.compile: rejected, it failed in first steps: no C++ compiler was found",
        "on this machine at all",
    ]
    assert all(len(line) <= 80 for line in lines[start : start + 6])


def test_the_document_has_every_lever_with_its_losses(result):
    rows = document(with_levers(result))["profile"]["evidence"]["variants"]
    assert rows[0]["losses"] == {"steps": 5, "difference": 0.0031, "bound": 0.02}
    assert [row["kept"] for row in rows] == [True, False, False]


def test_what_an_earlier_search_knows_better_is_said_with_its_date_and_is_what_is_trained_with(result):
    older = result.profile.model_copy(update={"settings": Settings(precision="fp32", micro_batch=48)})
    kept = ("the batch of 2026-01-01 00:00 UTC is kept: this search tried none",)
    text = as_text(dataclasses.replace(result, stored=Merged(profile=older, path=result.path, kept=kept)))
    assert "The batch of 2026-01-01 00:00 UTC is kept: this search tried none." in text
    assert "  micro batch       48  (default 32)" in text


def test_a_busy_machine_is_said_beside_the_gain(result):
    assert "others" not in as_text(result)
    told = {"other_cpus": 1.4, "busy_share": 1.0}
    trial = Trial(request=TrialRequest(kind="speed", batches=(8,)), end=End.FITS, measured=told)
    busy = dataclasses.replace(result, journal=Journal(None, trials=[trial]))
    lines = as_text(busy).splitlines()
    assert lines[1].startswith("! Other processes kept up to 1.4 CPUs busy during 1 of 1 timings")
    assert "Run the same command again when the machine is idle" in " ".join(lines[1:4])


def test_verbose_has_every_reason_and_every_trial(result):
    short, whole = as_text(result), as_text(result, verbose=True)
    assert "precision bf16: because" not in short
    assert "oom_host" not in short
    assert "precision bf16: because" in whole
    assert "oom_host" in whole


def test_when_nothing_beat_the_default_the_first_line_says_so(result):
    lost = dataclasses.replace(result.findings, kept_default=True, joints=[fed(64, 0.0300)])
    said = headline(dataclasses.replace(result, findings=lost))
    assert said == (
        "Tried 2 batches; none is faster than your default: 2,222 samples/s ±1 % with your data; "
        "the settings found reached 0.96 times (0.95 to 0.96) that."
    )
    near = dataclasses.replace(result.findings, joints=[fed(64, 0.0278, 0.0290)])
    said = headline(dataclasses.replace(result, findings=near))
    assert said.startswith("Tried 2 batches; none is faster than your default")
    assert said.endswith("the settings found reached 0.99 times (0.98 to 1.04) that.")


def test_what_was_not_tried_is_no_part_of_a_comparison(result):
    alone = Findings(defaults=result.findings.defaults, kept_default=True, needed_s=170.0)
    only = dataclasses.replace(result, context=dataclasses.replace(result.context, asked=("--only", "loader")))
    assert headline(dataclasses.replace(only, findings=alone)) == (
        "Not searched: the budget is too small for a first comparison. A search takes about 2 min 50 s: "
        "gpudoc tune --model quickstart --only loader --budget 3m"
    )
    negligible = dataclasses.replace(alone, needed_s=None, nothing_to_gain="loading takes 0.04% of a step")
    assert headline(dataclasses.replace(only, findings=negligible)) == "Not searched: loading takes 0.04% of a step."


def test_where_only_the_largest_batch_is_asked_for_the_first_line_is_that(result):
    found = dataclasses.replace(result.findings, asked_for_speed=False)
    first = as_text(dataclasses.replace(result, findings=found), width=200).splitlines()[0]
    assert f"The largest batch is {found.largest.batch:,}; you asked only for that" in first
    assert first.startswith("✓" if found.largest.is_proved else "–")


def test_a_search_that_ended_early_says_that_nothing_was_compared(result):
    early = dataclasses.replace(result, findings=dataclasses.replace(result.findings, joints=[], needed_s=90.0))
    said = headline(early)
    assert said.startswith(
        "Not compared with your default: tried 2 batches, but the budget is too small for a first comparison."
    )
    assert said.endswith("gpudoc tune --model quickstart --budget 90s")
    said = headline(dataclasses.replace(early, interrupted=True))
    assert said.startswith("Interrupted; this is the best so far. Not compared with your default")
    assert "it was interrupted before a first comparison" in said
    assert "--budget" not in said


def test_a_choice_that_could_not_be_timed_with_real_data_says_how_that_ended(result):
    short = fed(64, 0.0152).model_copy(update={"end": End.OOM_HOST, "points": ()})
    said = headline(dataclasses.replace(result, findings=dataclasses.replace(result.findings, joints=[short])))
    assert said.endswith("with your data these settings failed: memory ran out.")


def test_the_document_holds_the_gain_with_its_doubt(result):
    gain = document(result)["gain"]
    assert gain["ratio"][0] == pytest.approx(1.87, abs=0.02)
    assert gain["kept_default"] is False


def test_the_next_command_names_the_profile_only_where_train_would_not_find_it(result, tmp_path):
    assert train_command(result) == "gpudoc train --model quickstart"
    stored = Merged(profile=result.profile, path=tmp_path / "my profile.yaml")
    elsewhere = dataclasses.replace(result, stored=stored)
    assert train_command(elsewhere).startswith(
        f"gpudoc train --model quickstart --profile '{tmp_path}/my profile.yaml'"
    )
    context = dataclasses.replace(
        result.context,
        config=result.context.config.model_copy(update={"builtin": False}),
        source="configs/net.yml",
        ranks=2,
        user_limit_bytes=8 << 30,
    )
    asked = train_command(dataclasses.replace(result, context=context))
    assert asked == "gpudoc train --model configs/net.yml --gpus 2 --memory-limit 8192MiB"


def test_every_trial_says_how_its_processes_were_started(result):
    request = TrialRequest(kind="fit", batches=(8,))
    result.journal.add(Trial(request=request, end=End.FITS))
    assert "every trial, forked from a process that had already imported your code" in as_text(result, verbose=True)
    result.journal.add(Trial(request=request, end=End.FITS, how="exec"))
    assert "every trial, in processes that each imported your code" in as_text(result, verbose=True)
