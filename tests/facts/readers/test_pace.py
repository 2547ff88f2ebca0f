from __future__ import annotations

import pytest

from gpudoc.facts.readers import read
from gpudoc.facts.readers.pace import Pace, read_pace


def pace_of(text: str) -> Pace | None:
    return read_pace(read(text).text.lines)


def seconds(text: str) -> list[float]:
    pace = pace_of(text)
    return [] if pace is None else [one.seconds for one in pace.times]


@pytest.mark.parametrize(("text", "times"), [
    ("Epoch 0: 100%|####| 90/90 [12:00<00:00, 8.0s/it]\n"
     "validation: 100%|####| 9/9 [01:00<00:00]\n"
     "Epoch 1: 100%|####| 90/90 [04:00<00:00]\n", [720, 240]),
    ("90/90 [======] - 120s - loss: 1.1\n90/90 [======] - 240s - loss: 1.0\n", [120, 240]),
    ("epoch 1 loss 2.1 time: 10.5 s\nepoch 2 loss 2.0 time: 12.5 s\nepoch 3 loss 1.9 time: 15 s\n", [10.5, 12.5, 15]),
    ("Epoch [1][50/900] lr: 0.1, time: 0.52, data_time: 0.1\nEpoch [1][100/900] lr: 0.1, time: 0.54\n"
     "Epoch [1][150/900] data_time: 0.02, time: 4.12\n", [0.52, 0.54, 4.12]),
    ("Epoch 1 .. [done][172.7 seconds]\nEpoch 2 .. [171.5 seconds]\nEpoch 3 .. [4623.6 s]\n", [172.7, 171.5, 4623.6]),
    ("Epoch[0] Batch [20] Speed: 100 samples/sec\nEpoch[0] Batch [40] Speed: 50.0 samples/sec\n"
     "Epoch[1] Batch [20] Speed: 25 images/s\n", [0.01, 0.02, 0.04]),
    ("time this epoch= 1.75\ntime this epoch= 2.05\ntime this epoch= 2.68\n", [1.75, 2.05, 2.68]),
    ("At first it took about 1 minute per epoch, now it takes 4 minutes per epoch.", [60, 240]),
    ("In the beginning an epoch took 390s, later 890s and then 1200s.", [390, 890, 1200]),
    ("The first epoch runs at 8 it/s, the third one at 32 it/s.", [0.125, 0.03125]),
    ("一开始一个 epoch 要 10 分钟，后来要 40 分钟", [600, 2400]),
    ("Сначала эпоха занимала 2 минуты, теперь 10 минут.", [120, 600]),
])  # fmt: skip
def test_times_are_read_in_order_from_logs_and_from_what_is_stated(text, times):
    assert seconds(text) == pytest.approx(times)


@pytest.mark.parametrize("text", [
    "An epoch takes 33 seconds with no workers and 136 seconds with eight.",
    "One epoch takes 21 seconds.",
    "Epoch 1 at 81.6s\nEpoch 2 at 163.1s\nEpoch 3 at 244.6s\n",
    "epoch 1 loss 0.5\nepoch 2 loss 0.4\n",
    "At first I had 10 GB and now 20 GB.",
])  # fmt: skip
def test_a_comparison_a_single_time_and_a_clock_that_runs_are_no_pace(text):
    assert pace_of(text) is None


@pytest.mark.parametrize(("text", "grew", "fell"), [
    ("At first an epoch took 60 s, now it takes 240 s.", True, False),
    ("The first epoch took 240 s, the second one 60 s.", False, True),
    ("At first an epoch took 60 s, now it takes 62 s.", False, False),
])  # fmt: skip
def test_what_grew_and_what_fell(text, grew, fell):
    pace = pace_of(text)
    assert pace is not None
    assert (pace.grew, pace.fell) == (grew, fell)


@pytest.mark.parametrize(("values", "jumped"), [
    ((2.0, 2.1, 1.9, 212.3, 2.0), True),
    # the first step starts everything
    ((30.0, 2.1, 1.9, 2.0, 2.2), False),
    ((2.0, 2.1, 6.0, 2.0, 2.1), False),
])  # fmt: skip
def test_one_step_behind_the_first_that_takes_several_times_the_usual_time_is_a_jump(values, jumped):
    pace = pace_of("".join(f"step {n} loss 1.{n} took {value} s\n" for n, value in enumerate(values)))
    assert pace is not None
    assert pace.jumped is jumped
