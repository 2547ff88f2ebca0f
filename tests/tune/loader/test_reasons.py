"""The sentences about a loader carry the figures that they rest on."""

from __future__ import annotations

import dataclasses

from gpudoc.tune.loader.reasons import LoaderOutcome, name, prediction, sentences
from gpudoc.tune.model.loader import LoaderBounds, LoaderSetting
from tests.tune.model.test_loader import costs

BOUNDS = LoaderBounds(cpus=4)


def outcome(**changes) -> LoaderOutcome:
    plain = LoaderOutcome(
        chosen=LoaderSetting(num_workers=4),
        missing_factor=None,
        limit=None,
        prefetch_gain=0.0,
        epoch_start_s=0.25,
        keeps_workers=True,
        pinned_gain=None,
    )
    return dataclasses.replace(plain, **changes)


def test_settings_have_names():
    assert name(LoaderSetting(num_workers=0)) == "no workers"
    assert name(LoaderSetting(num_workers=1, prefetch_factor=1)) == "1 worker x 1 batch"
    assert name(LoaderSetting(num_workers=4, pin_memory=True)) == "4 workers x 2 batches, pinned"


def test_each_setting_has_its_reason():
    workers, prefetch, pinned, persistent = sentences(outcome(), costs(), BOUNDS)
    # what it gains is timed with the whole step, and said once
    assert workers == (
        "num_workers 4: one worker makes a batch in 80 ms, a step takes 19 ms; the fewest within 2 % of the best run"
    )
    assert prefetch.startswith("prefetch_factor 2")
    assert "32 MiB lie ready" in prefetch
    assert pinned == "pin_memory false: nothing is copied to a GPU"
    assert "250 ms an epoch" in persistent


def test_no_workers_need_no_reason_for_prefetch():
    reasons = sentences(outcome(chosen=LoaderSetting(num_workers=0)), costs(), BOUNDS)
    assert [r.split(":")[0] for r in reasons] == ["num_workers 0", "pin_memory false"]


def test_a_cpu_that_cannot_feed_is_said_with_the_factor():
    last = sentences(outcome(missing_factor=3.1), costs(), BOUNDS)[-1]
    assert "cannot feed" in last
    assert "3.10x slower" in last
    assert "4 CPUs" in last


def test_a_bound_that_forbids_workers_is_named():
    assert "/dev/shm forbids" in sentences(outcome(limit="/dev/shm"), costs(), BOUNDS)[-1]


def test_costly_handing_over_is_named():
    last = sentences(outcome(), costs(main_s=0.01), BOUNDS)[-1]
    assert "main process 10 ms for 4 MiB" in last


def test_pinned_memory_is_judged_by_its_run():
    reasons = sentences(outcome(pinned_gain=0.07), costs(), BOUNDS)
    assert "pinned memory measured +7.0% against pageable" in reasons[2]


def test_nothing_is_said_of_workers_that_were_not_tried():
    found = outcome(chosen=LoaderSetting(num_workers=0), left_out=(LoaderSetting(num_workers=6),))
    reasons = sentences(found, costs(), BOUNDS)
    assert "settings with workers have not been tried yet" in reasons[0]
    assert not any("faster" in reason for reason in reasons)


def test_what_there_was_no_time_for_is_named():
    reasons = sentences(outcome(left_out=(LoaderSetting(num_workers=6),)), costs(), BOUNDS)
    assert reasons[-1] == "not tried for lack of time: 6 workers x 2 batches; use a longer --budget"


def test_one_pass_over_the_data_keeps_no_workers():
    assert sentences(outcome(keeps_workers=False), costs(), BOUNDS)[3].startswith("persistent_workers false")


def test_the_prediction_is_said_before_it_is_tried():
    text = prediction(costs(), LoaderSetting(num_workers=4), BOUNDS)
    assert "80 ms" in text
    assert "4 workers x 2 batches" in text
    assert "step every 25 ms" in text
