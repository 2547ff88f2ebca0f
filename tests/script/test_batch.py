import pytest

from gpudoc.script.batch import cap_of
from gpudoc.script.look import lever_of
from tests.script.pretended import Pretended, loader, session_of, sized


def test_the_largest_batch_is_shown_from_both_sides():
    # 64 MiB and 1 MiB a sample under 256 MiB: 192 fit
    runner = Pretended()
    found = sized(session_of(runner), goal="largest", max_batch=None)
    assert found.largest.is_proved
    assert 188 <= found.largest.batch <= 192
    assert 193 <= found.largest.fails_at <= found.largest.batch + 4
    assert found.choice.batch == found.largest.batch
    assert len(runner.requests) <= 12


@pytest.mark.parametrize("share_s", [1e9, 20.0], ids=["time for all", "time to calibrate"])
@pytest.mark.parametrize(
    ("samples", "max_batch", "says"),
    [(64, None, "the data set has no more samples"), (4096, 64, "--max-batch allows no larger one")],
)
def test_a_batch_that_holds_all_there_is_is_proved_from_below_and_says_why_it_ends(samples, max_batch, says, share_s):
    session = session_of(Pretended(), built=loader(samples=samples), budget_s=share_s / 0.6)
    found = sized(session, goal="largest", max_batch=max_batch)
    largest = found.largest
    assert (largest.batch, largest.fails_at, largest.is_proved) == (64, None, True)
    assert found.batch_reasons[0] == f"batch 64: the largest that fits, proved from below: {says}"
    assert found.batch_reasons[1].startswith(f"largest batch 64 under 256 MiB: it ran, and {says}")
    assert not [reason for reason in found.batch_reasons if "budget" in reason]


def test_for_speed_the_smallest_batch_that_is_as_fast_is_offered():
    runner = Pretended(fixed_s=0.001, step_s=0.01, sample_s=0.0)
    found = sized(session_of(runner), goal="throughput", max_batch=None)
    assert found.choice.batch < 64
    assert found.largest is not None
    assert any("95 % of the highest speed" in reason for reason in found.batch_reasons)


def test_no_batch_beyond_eight_times_the_scripts_own_is_offered_for_speed():
    runner = Pretended(fixed_s=1.0, step_s=0.0001, sample_s=0.0, bytes_per_sample=1 << 16)
    found = sized(session_of(runner), goal="throughput", max_batch=None)
    assert found.choice.batch == 64
    assert found.largest.batch > 64


def test_the_cap_is_what_a_data_set_can_fill_on_each_rank():
    look = session_of(Pretended()).runner.look
    assert cap_of(look, None) == 4096
    assert cap_of(look, 100) == 100


@pytest.mark.parametrize(
    ("built", "takes", "lever", "says"),
    [
        (loader(), False, "loader", ""),
        (loader(), True, "flag", ""),
        (loader(own_batch_sampler=True, batch_size=None), False, "none", "uses a batch_sampler"),
        (loader(batch_size=None), False, "none", "without a batch size"),
        (loader(number=3), False, "none", "no DataLoader"),
        (loader(own_batch_sampler=True, batch_size=None), True, "flag", ""),
    ],
)
def test_the_lever_is_the_placeholder_or_the_loaders_own_batch_size(built, takes, lever, says):
    found, why = lever_of(session_of(Pretended(), built=built).runner.look, takes_batch=takes)
    assert found == lever
    assert says in why
