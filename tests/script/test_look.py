import pytest

from gpudoc.script.look import blocks, look_at, script_loaders, steady
from tests.script.pretended import loader, seen, steps


def look(*processes, warm_steps=0):
    return look_at(processes, warm_steps=warm_steps, start_s=3.0)


def test_a_script_without_a_step_has_no_look():
    assert look(seen()) is None
    assert look() is None


def test_steps_are_timed_after_the_warm_ones():
    event = steps([9.0, 9.0] + [0.2] * 8, [8.0, 8.0] + [0.05] * 8)
    found = look(seen(event), warm_steps=2)
    assert found.step_s == pytest.approx(0.2)
    assert found.wait_share == pytest.approx(0.25)
    assert found.samples_per_s == pytest.approx(40.0)
    assert found.steps == 8


def test_few_steps_are_better_than_none():
    assert len(steady(seen(steps([5.0, 0.1, 0.1], [0, 0, 0])), 10).step_s) == 2


def test_a_card_from_rest_is_timed_once_it_is_awake():
    """Its clocks rise in the first second; of what never takes so long half is left out, and a CPU does not rest."""
    slow_first = steps([4.0] + [0.3] * 4 + [0.2] * 10, [0.0] * 15, device="cuda:0")
    assert steady(seen(slow_first), 3, 1.0).step_s == (0.2,) * 10
    assert len(steady(seen(slow_first), 3).step_s) == 12
    short = steps([4.0] + [0.1] * 7, [0.0] * 8, device="cuda:0")
    assert len(steady(seen(short), 2, 1.0).step_s) == 4
    assert len(steady(seen(steps([4.0] + [0.3] * 14, [0.0] * 15)), 3, 1.0).step_s) == 12


def test_a_step_that_an_evaluation_came_before_is_left_out():
    event = steps([0.1, 0.1, 30.0, 0.1], [0.0] * 4, first=4, evaluated=(6,))
    found = look(seen(event))
    assert found.step_s == pytest.approx(0.1)
    assert found.evaluates


def test_the_loader_that_feeds_the_steps_trains_and_the_others_do_not():
    built = [
        loader(number=0, key="a", place="train.py:7"),
        loader(number=1, key="b", place="train.py:8", batch_size=64),
        loader(number=2, key="a", place="train.py:7", through="accelerate", remade_from=0),
    ]
    found = look(seen(steps([0.1] * 6, [0.0] * 6, loader=2), loaders=built))
    assert found.training.place == "train.py:7"
    assert found.feeding.number == 2
    assert [(one.at, one.role) for one in script_loaders(found)] == [
        ("train.py:7", "training"), ("train.py:8", "other"),
    ]  # fmt: skip


def test_the_samples_of_all_ranks_are_added_and_their_peaks_are_not():
    ranks = [seen(steps([0.1] * 5, [0.0] * 5, rank=rank, world=2, peak_bytes=(rank + 1) << 20)) for rank in (0, 1)]
    found = look(*ranks)
    assert found.ranks == 2
    assert found.samples_per_s == pytest.approx(160.0)
    assert found.peak_bytes == 2 << 20


def test_a_step_of_several_batches_is_known_by_its_samples():
    found = look(seen(steps([0.1] * 5, [0.0] * 5, samples=32)))
    assert found.micro_batches == 4


def test_steps_whose_samples_are_not_known_are_no_part_of_the_rate():
    events = (steps([0.1] * 3, [0.0] * 3), steps([0.5], [0.0], samples=None, first=3))
    assert look(seen(*events)).samples_per_s == pytest.approx(80.0)


def test_samples_that_are_not_known_give_no_rate():
    found = look(seen(steps([0.1] * 5, [0.0] * 5, samples=None)))
    assert found.samples_per_s is None
    assert found.micro_batches == 1


@pytest.mark.parametrize(
    ("autocast", "parameters", "precision"),
    [(None, "torch.float32", "fp32"), ("torch.bfloat16", "torch.float32", "bf16"), (None, "torch.float16", "fp16")],
)
def test_the_precision_is_that_of_autocast_or_of_the_parameters(autocast, parameters, precision):
    found = look(seen(steps([0.1] * 5, [0.0] * 5, autocast=autocast, parameters=parameters)))
    assert found.precision == precision


def test_blocks_keep_the_mean_of_bursts():
    assert blocks([0.0, 0.4] * 8, 4) == pytest.approx([0.2] * 4)
    assert blocks([1.0, 2.0], 8) == [1.0, 2.0]
