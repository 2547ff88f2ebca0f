import json
from dataclasses import replace

import pytest

from gpudoc.tune.model.scaling import Setup, assess_point, conclude, counted, fastest, useful_accumulation
from gpudoc.tune.trial.messages import End, Trial, TrialRequest

SETUP = Setup(model="cfg.yaml", on_gpu=True, batch=32, num_samples=100_000, tuned=True, pins=True)


def blocks(seconds, spread=0.0):
    return tuple(seconds * (1 + spread * offset) for offset in (-1, 0, 1, 0, -1, 1, 0, 1, -1, 0))


def trial(ranks, *, resident, copy=0.0, exchange=0.0, wait=0.0, fixed=0.0, spread=0.0, end=End.FITS):
    """A step that takes `resident` seconds, and more with a copy, an exchange, a wait for data."""
    legs = {"resident": blocks(resident, spread), "computed": blocks(resident + copy, spread)}
    if ranks > 1:
        legs["exchanged"] = blocks(resident + copy + exchange, spread)
    else:
        legs["small"] = blocks(fixed + (resident + copy - fixed) / 4, spread)
    legs["loaded"] = blocks(resident + copy + exchange + wait, spread)
    return Trial(request=TrialRequest(kind="scaling", batches=(32,), ranks=ranks), end=end, legs=legs)


def points(alone, *others):
    first = assess_point(alone, alone, 8, None)
    return [first, *(assess_point(other, alone, 8, first) for other in others)]


ALONE = trial(1, resident=0.10, copy=0.01, wait=0.01, fixed=0.02)


def test_the_losses_and_the_efficiency_add_up_to_the_step():
    _, point = points(ALONE, trial(4, resident=0.12, copy=0.03, exchange=0.04, wait=0.03))
    assert point.samples_per_s.middle == pytest.approx(4 * 32 / 0.22)
    assert point.efficiency.middle == pytest.approx(0.12 / 0.22)
    assert point.speedup == pytest.approx(4 * 0.12 / 0.22)
    lost = {name: span.middle * 0.22 for name, span in point.losses.items()}
    assert lost == pytest.approx({"loader": 0.02, "communication": 0.04, "transfer": 0.02, "contention": 0.02})
    assert sum(span.middle for span in point.losses.values()) == pytest.approx(1 - point.efficiency.middle)


@pytest.mark.parametrize(
    ("other", "cause", "says"),
    [
        (trial(4, resident=0.10, copy=0.01, wait=0.11), "loader", "waiting for data takes 100 ms of a step of 220 ms"),
        (trial(4, resident=0.10, copy=0.01, exchange=0.05, wait=0.01), "communication", "50 ms of a step of 170 ms"),
        (trial(4, resident=0.10, copy=0.01, exchange=0.30, wait=0.01), "batch_too_small", "the samples take 80 ms"),
        (trial(4, resident=0.10, copy=0.06, wait=0.01), "transfer", "copies to the device take 50 ms"),
        (trial(4, resident=0.16, copy=0.01, wait=0.01), "contention", "lose 60 ms of a step of 180 ms to each other"),
        (trial(4, resident=0.10, copy=0.01, wait=0.013), None, "little is lost"),
        (trial(4, resident=0.13, copy=0.01, wait=0.01, spread=0.3), "spread", "within the spread"),
    ],
    ids=["loader", "communication", "batch too small", "transfer", "contention", "nothing", "spread"],
)
def test_what_eats_the_rest_is_named_only_when_it_is_sure(other, cause, says):
    _, point = points(ALONE, other)
    assert point.cause == cause
    assert says in point.why


def test_a_cpu_copies_nothing_and_says_nothing_of_transfer():
    def on_cpu(found):
        return found.model_copy(update={"legs": {k: v for k, v in found.legs.items() if k != "resident"}})

    alone, other = on_cpu(ALONE), on_cpu(trial(2, resident=0.15, copy=0.01, exchange=0.02, wait=0.01))
    point = assess_point(other, alone, 1, None)
    assert set(point.losses) == {"loader", "communication", "contention"}
    assert point.losses["contention"].middle * point.step_s == pytest.approx(0.05)
    assert point.cause == "contention"


def test_ranks_that_failed_are_a_point_without_figures():
    failed = Trial(request=TrialRequest(kind="scaling", batches=(32,), ranks=2), end=End.OOM_HOST, detail="no memory")
    first, point = points(ALONE, failed)
    assert (point.end, point.samples_per_s, point.detail) == (End.OOM_HOST, None, "no memory")
    assert conclude([first, point], SETUP)[0].startswith("nothing to compare")


def test_one_rank_tells_what_its_step_does_besides_work():
    (point,) = points(ALONE)
    assert point.fixed_s == pytest.approx(0.02)
    assert point.compute_s == pytest.approx(0.08)
    assert point.why == "of its step: waiting for data 8%, fixed cost 17%"


def test_exchanging_less_often_is_computed_from_what_was_measured():
    _, point = points(ALONE, trial(4, resident=0.10, copy=0.01, exchange=0.05, wait=0.01))
    count, reached = useful_accumulation(point)
    assert 0.12 / (0.12 + 0.05 / count) == pytest.approx(reached)
    assert reached >= 0.9 > 0.12 / (0.12 + 0.05 / (count - 1))
    _, hopeless = points(ALONE, trial(4, resident=0.16, copy=0.01, exchange=0.05, wait=0.01))
    assert useful_accumulation(hopeless) is None


@pytest.mark.parametrize(
    ("other", "setup", "command"),
    [
        (trial(4, resident=0.1, copy=0.01, wait=0.11), {}, "gpudoc tune --model cfg.yaml --only loader --gpus 4"),
        (
            trial(4, resident=0.1, copy=0.01, exchange=0.05, wait=0.01),
            {},
            "gpudoc train --model cfg.yaml --gpus 4 --batch-size 32 --set global_batch=512",
        ),
        (
            trial(4, resident=0.1, copy=0.01, exchange=0.05, wait=0.01),
            {"num_samples": 500},
            "gpudoc train --model cfg.yaml --gpus 4",
        ),
        (
            trial(4, resident=0.1, copy=0.01, exchange=0.3, wait=0.01),
            {"tuned": False},
            "gpudoc tune --model cfg.yaml --only batch,speed --gpus 4",
        ),
        (
            trial(4, resident=0.1, copy=0.06, wait=0.01),
            {"pins": False},
            "gpudoc train --model cfg.yaml --gpus 4 --set pin_memory=true",
        ),
        (trial(4, resident=0.1, copy=0.06, wait=0.01), {}, "gpudoc bench --only copies"),
        (trial(4, resident=0.9, copy=0.01, wait=0.01), {}, "gpudoc train --model cfg.yaml --gpus 1"),
        (
            trial(4, resident=0.1, copy=0.01, wait=0.01),
            {"on_gpu": False},
            "gpudoc train --model cfg.yaml --device cpu --gpus 4",
        ),
    ],
)
def test_the_command_fits_the_cause(other, setup, command):
    assert conclude(points(ALONE, other), replace(SETUP, **setup))[1] == command


def test_the_verdict_says_how_much_is_gained_and_where_it_ends():
    two = trial(2, resident=0.10, copy=0.01, wait=0.01)
    four = trial(4, resident=0.25, copy=0.01, wait=0.01)
    found = points(ALONE, two, four)
    assert fastest(found).ranks == 2
    sentence, _ = conclude(found, SETUP)
    assert sentence == (
        "4 GPUs train at 1.78 times the speed of one, 44% efficiency; the ranks slow each other down; "
        "there is no gain beyond 2"
    )
    on_cpu, _ = conclude(points(ALONE, two), Setup(model="m", on_gpu=False, batch=32, num_samples=9))
    assert (
        on_cpu == "2 processes with 8 threads each train at 2.00 times the speed of one with 8 threads, 100% efficiency"
    )


def test_the_document_is_plain_data():
    _, point = points(ALONE, trial(2, resident=0.12, copy=0.01, exchange=0.02, wait=0.01))
    document = json.loads(json.dumps(counted(point)))
    assert document["ranks"] == 2
    assert document["efficiency"] == pytest.approx(0.75)
    assert document["lost"]["communication"]["middle"] == pytest.approx(0.125)
    assert document["efficiency_interval"][0] <= document["efficiency"] <= document["efficiency_interval"][1]


def test_a_few_blocks_leave_so_much_doubt_that_nothing_is_named():
    few = {
        name: blocks[:1] for name, blocks in trial(4, resident=0.10, copy=0.01, exchange=0.05, wait=0.01).legs.items()
    }
    _, point = points(ALONE, trial(4, resident=0.1).model_copy(update={"legs": few}))
    assert point.samples_per_s.low < point.samples_per_s.middle < point.samples_per_s.high
    assert point.cause == "spread"
