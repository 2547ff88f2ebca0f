"""The verdict follows from the split, and the advice names one thing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.spinning import Crowd, find_spinning
from gpudoc.process.openmp import OpenMp
from gpudoc.train.meter.meters import Split
from gpudoc.train.ranks.pace import Slow
from gpudoc.train.report.advice import RunSituation, about_slow, advise, verdict
from gpudoc.train.settings import TrainSettings


def split(**seconds):
    return Split.of(seconds)


def situation(num_cpus=8, profile_kind="tuned", most_workers=None, **settings):
    return RunSituation(
        settings=TrainSettings(**settings),
        model="cfg.yaml",
        device_type="cuda",
        num_cpus=num_cpus,
        profile_kind=profile_kind,
        most_workers=most_workers,
    )


def test_waiting_for_data_names_the_workers_and_what_they_are_worth():
    found = advise(split(data_wait=38.0, compute=62.0), situation(num_workers=2))
    assert found[0].say == "waited 38% for data: num_workers 2 -> 4, worth at most about 1.6x"
    assert found[0].run == "gpudoc tune --model cfg.yaml --only loader"


def test_with_all_cpus_busy_more_workers_are_no_advice():
    found = advise(split(data_wait=50.0, compute=50.0), situation(num_cpus=2, num_workers=2))
    assert "the data set itself is the limit" in found[0].say


def test_a_run_that_computes_needs_no_advice_unless_it_was_never_tuned():
    assert advise(split(compute=100.0), situation()) == []
    assert advise(split(compute=100.0), situation(profile_kind="off"))[0].run == "gpudoc tune --model cfg.yaml"


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("checkpoint", "checkpoint_every="),
        ("transfer", "pin_memory"),
        ("communicate", "global_batch="),
        ("host", "compile=true"),
    ],
)
def test_each_phase_has_its_own_way_out(phase, said):
    assert said in advise(split(compute=50.0, **{phase: 50.0}), situation())[0].run


def test_a_gain_is_bounded_by_what_the_advice_can_save():
    (found,) = advise(split(compute=60.0, checkpoint=40.0), situation(checkpoint_every=10))
    # three of four checkpoints
    assert found.document()["gain"] == {"at_least": 1.0, "at_most": pytest.approx(1 / 0.7, abs=1e-3)}
    assert "worth at most about 1.4x" in found.say
    assert "gain" not in advise(split(compute=1.0), situation(profile_kind="off"))[0].document()


@pytest.mark.parametrize(
    ("settings", "run", "at_most"),
    [
        # half as many kernels
        ({"accumulation": 4, "micro_batch": 8}, "--batch-size 16", 1 / 0.8),
        ({"log_every": 1, "accumulation": 4}, "--set log_every=10", 1 / 0.6),
        ({}, "--set compile=true", 1 / 0.6),
        ({"compile": True}, "--trace 5", 1 / 0.6),
    ],
)
def test_a_gpu_that_waits_for_python_gets_more_work_at_once(settings, run, at_most):
    (found,) = advise(split(compute=60.0, host=40.0), situation(**settings))
    assert (found.run, found.at_most) == (run, pytest.approx(at_most))
    assert found.say.startswith("the GPU waited 40% for Python")


def test_compiling_is_worth_a_word_when_it_happens_again():
    seconds = split(compute=70.0, compile=30.0)
    assert advise(seconds, situation()) == []
    (found,) = advise(seconds, replace(situation(), recompiled="forward (net.py:3) 8 more times, the last because x"))
    assert "again and again: forward (net.py:3) 8 more times" in found.say


def test_pinned_copies_that_are_waited_for_are_larger_than_they_need_to_be():
    (found,) = advise(split(compute=70.0, transfer=30.0), situation(pin_memory=True))
    assert "bytes would be smaller than floats" in found.say
    assert found.run == ""


def test_the_largest_loss_of_time_comes_first():
    found = advise(split(data_wait=20.0, checkpoint=40.0, compute=40.0), situation())
    assert "checkpoints" in found[0].say
    assert "data" in found[1].say


@pytest.mark.parametrize(("device", "named"), [("cpu", True), ("cuda", False)])
def test_threads_that_spin_beside_others_are_named_with_the_setting_where_the_cpu_computes(device, named):
    crowd = Crowd(threads=2, cpus=2.0, other_cpus=1.0, openmp=OpenMp("libgomp"))
    seen = replace(situation(), device_type=device, spinning=find_spinning(crowd))
    found = advise(split(compute=100.0), seen)
    assert [advice.run for advice in found] == ["export OMP_WAIT_POLICY=passive"] * named


def test_seconds_of_checkpoints_in_a_short_run_are_not_worth_a_word():
    assert advise(split(compute=1.0, checkpoint=1.0), situation()) == []


def test_the_verdict_is_one_sentence_of_the_largest_shares():
    assert (
        verdict(split(compute=90.0, data_wait=9.5, other=0.5)) == "time went into 90% computing, 10% waiting for data"
    )
    assert verdict(Split.of({})) == "no step was trained"


def test_one_evaluation_at_the_end_of_a_short_run_is_no_habit():
    seconds = {"compute": 50.0, "evaluate": 50.0}
    assert advise(split(**seconds), situation(steps=6, eval_every=200)) == []
    assert advise(split(**seconds), situation(steps=600, eval_every=200))[0].run == "--set eval_every=800"


def test_a_stream_is_advised_no_more_workers_than_it_can_use():
    waited = split(data_wait=50.0, compute=50.0)
    assert advise(waited, situation(num_workers=0, most_workers=1))[0].run == "--num-workers 1"
    found = advise(waited, situation(num_workers=1, most_workers=1))[0]
    assert "__getitem__" in found.say
    assert found.run == ""


def test_a_slow_rank_is_told_with_what_the_run_would_gain_without_it():
    assert about_slow(None) == []
    (advice,) = about_slow(Slow(rank=2, step_s=0.3, others_s=0.2, where="computing"))
    assert advice.say.startswith("rank 2 is 1.5 times as slow as the others in computing")
    assert advice.say.endswith("without it a step takes at best 67% of the time")
