"""What a run's own numbers say, and that other numbers in the same words say nothing."""

from __future__ import annotations

import pytest

from gpudoc.doctor.causes import timed
from gpudoc.doctor.model import Evidence
from gpudoc.facts.readers import read


def found(text: str) -> list[tuple[str, str]]:
    reading = read(text)
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    return [(one.id, one.evidence[0].value) for finder in timed.FINDERS for one in finder.find(evidence)]


BAR = "Map:  61%|██████    | 610000/1000000 [{clock}<11:32, 560.1 examples/s]\n    with args.main_process_first(desc='map'):"


@pytest.mark.parametrize(
    ("clock", "seconds"), [("29:58", "29 min 58 s"), ("30:12", "30 min 12 s"), ("10:03", "10 min 3 s")]
)
def test_a_bar_that_ends_at_the_limit_of_a_barrier_was_one_ranks_work(clock, seconds):
    assert found(BAR.format(clock=clock)) == [("nccl_timeout_one_rank_busy", f"{seconds} of work when it ended")]


def test_a_bar_that_ends_at_any_other_time_or_waits_for_nobody_says_nothing():
    assert found(BAR.format(clock="04:10")) == []
    assert found(BAR.format(clock="30:12").split("\n")[0]) == []


def test_samples_that_leave_a_rest_are_divided():
    text = "Training on two GPUs crashes at the end of an epoch. I have 1025 images and 1025 % 8 = 1"
    assert found(text) == [("ddp_uneven_inputs", "1025 samples leave 1 over by 8")]
    assert found(text.replace("1025 % 8 = 1", "1024 % 8 = 0")) == []
    # whoever reckons wrongly has another rest
    assert found(text.replace("1025 % 8 = 1", "1025 % 8 = 2")) == []


def epochs(*clocks: str) -> str:
    return "".join(f"100%|####| 469/469 [{clock}<00:00, 1.2it/s]\n" for clock in clocks)


def test_epochs_that_become_much_shorter_read_from_the_storage_first():
    assert found(epochs("12:53", "04:10", "02:05")) == [
        ("slow_storage", "773 s for the first pass over the data, 125 s for the last")
    ]
    assert found(epochs("12:53", "12:50", "12:49")) == []
    assert found(epochs("12:53", "02:05")) == []
    assert found(epochs("00:09", "00:04", "00:02")) == []


def test_a_device_that_works_for_less_than_half_of_the_step_waits_for_launches():
    assert found("GPU busy time: 4.1 ms, step time: 21.0 ms") == [("launch_bound", "4.1 ms of 21.0 ms")]
    assert found("GPU busy time: 19.8 ms, step time: 21.0 ms") == []


def test_a_callback_that_takes_longer_than_its_step():
    said = (
        "WARNING:tensorflow:Callback method `on_train_batch_end` is slow compared to the batch time (batch time: {batch}s "
        "vs `on_train_batch_end` time: {callback}s). Check your callbacks."
    )
    ((cause, _),) = found(said.format(batch="0.0300", callback="0.1200"))
    assert cause == "logging_each_step"
    assert found(said.format(batch="0.0010", callback="0.0030")) == []
    assert found(said.format(batch="0.3000", callback="0.1200")) == []
