import itertools

import pytest

from gpudoc.errors import GpudocError
from gpudoc.tune.model.memory import MemoryLine, next_calibration_batch
from gpudoc.tune.search.largest import find_largest, settle_largest
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest, Variant
from gpudoc.units import MIB

EXACT = Variant(allocator="exact")


class Machine:
    """A process that needs `peak(batch)` bytes, and `later(batch)` for what comes after the first steps."""

    def __init__(self, peak, limit, later=None, jitter=0, fails=None):
        self.peak, self.limit, self.later = peak, limit, later or peak
        self.jitter, self.fails = jitter, fails or {}
        self.fitted, self.count = [], itertools.count()

    def bytes_at(self, batch, function):
        wander = (next(self.count) * 7919 % 2001 / 1000 - 1) * self.jitter
        return int(function(batch) + wander)

    def trial(self, kind, batch, used, end=End.OOM_HOST, stage="train"):
        request = TrialRequest(kind=kind, batches=(batch,), variant=EXACT)
        end = self.fails.get(batch, end)
        if used > self.limit or batch in self.fails:
            return Trial(request=request, end=end, failed_batch=batch, stage=stage)
        return Trial(request=request, end=End.FITS, points=(Point(batch=batch, peak_bytes=used, rest_bytes=50 * MIB),))

    def calibrate(self, cap):
        points = []
        while (batch := next_calibration_batch(points, self.limit, cap)) is not None:
            used = self.bytes_at(batch, self.peak)
            if used > self.limit:
                request = TrialRequest(kind="calibrate", batches=(cap,), variant=EXACT)
                return Trial(request=request, end=End.OOM_HOST, failed_batch=batch, points=tuple(points))
            points.append(Point(batch=batch, peak_bytes=used, rest_bytes=50 * MIB))
        return Trial(
            request=TrialRequest(kind="calibrate", batches=(cap,), variant=EXACT), end=End.FITS, points=tuple(points)
        )

    def fit(self, batch):
        self.fitted.append(batch)
        return self.trial("fit", batch, self.bytes_at(batch, self.peak))

    def steady(self, batch, *, steps):
        return self.trial("steady", batch, self.bytes_at(batch, self.later), stage="eval")

    def needed_bytes(self, batch):
        return self.peak(batch)

    def can_afford(self, samples):
        return True

    def say(self, text):
        assert text


def truth(machine):
    batch = 1
    while machine.peak(batch + 1) <= machine.limit:
        batch += 1
    return batch


PEAKS = {
    "affine": lambda b: 100 * MIB + b * 4 * MIB,
    "two slopes": lambda b: max(160 * MIB + b * MIB, 60 * MIB + b * 5 * MIB),
    "small samples": lambda b: 110 * MIB + b * 70_000,
    "workspace switch": lambda b: 100 * MIB + b * 3 * MIB + (0 if b < 96 else 40 * MIB),
    "frees at a size": lambda b: 100 * MIB + b * 3 * MIB - (0 if b < 96 else 30 * MIB),
}


@pytest.mark.parametrize("name", PEAKS)
@pytest.mark.parametrize("limit_mib", [256, 333, 512, 700, 1024, 1500])
def test_the_largest_batch_is_found_with_both_certificates(name, limit_mib):
    machine = Machine(PEAKS[name], limit_mib * MIB, jitter=0.4 * MIB)
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    expected = truth(Machine(PEAKS[name], limit_mib * MIB))
    tolerance = max(1, int(2 * MIB / (PEAKS[name](101) - PEAKS[name](100)))) if expected > 100 else 1
    assert abs(found.batch - expected) <= tolerance
    assert found.is_proved
    assert found.fails_at - found.batch <= tolerance
    assert found.batch in machine.fitted
    assert found.fails_at in machine.fitted


def test_launches_and_failures_stay_few_on_affine_memory():
    launches, failures = [], []
    for limit_mib in range(220, 1800, 37):
        for name in ("affine", "two slopes", "small samples"):
            machine = Machine(PEAKS[name], limit_mib * MIB, jitter=0.2 * MIB)
            found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
            launches.append(found.launches)
            failures.append(found.num_oom)
    assert sorted(launches)[len(launches) // 2] <= 4
    assert sorted(launches)[int(0.95 * len(launches))] <= 6
    assert sorted(failures)[len(failures) // 2] <= 1


def test_a_cap_below_the_limit_is_itself_run():
    machine = Machine(PEAKS["affine"], 1024 * MIB)
    found = find_largest(machine, limit_bytes=machine.limit, cap=77)
    assert (found.batch, found.fails_at, found.is_proved) == (77, None, True)
    assert machine.fitted == [77]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0, 1.02, 1.3, 3.0])
def test_an_expected_line_saves_the_calibration_and_never_the_truth(share):
    machine = Machine(PEAKS["affine"], 1024 * MIB)
    line = MemoryLine(batch=231, peak_bytes=int(1024 * MIB / share), bytes_per_sample=4 * MIB / share)
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6, expected=line)
    assert (found.batch, found.fails_at) == (231, 232)
    if share == 1.0:
        assert machine.fitted == [231, 232]
        assert found.launches == 2
    assert found.launches <= 6


def test_an_expected_line_under_which_nothing_fits_is_checked_by_running():
    machine = Machine(PEAKS["affine"], 1024 * MIB)
    line = MemoryLine(batch=1, peak_bytes=2048 * MIB, bytes_per_sample=4.0 * MIB)
    assert find_largest(machine, limit_bytes=machine.limit, cap=10**6, expected=line).batch == 231


def test_a_limit_between_the_powers_of_two_near_8192_is_exact():
    machine = Machine(lambda b: 100 * MIB + b * 200_000, 100 * MIB + 5000 * 200_000)
    found = find_largest(machine, limit_bytes=machine.limit, cap=100_000)
    assert abs(found.batch - 5000) <= 10
    assert found.is_proved


def test_an_index_limit_ends_the_search_like_a_full_memory():
    peak = PEAKS["small samples"]
    machine = Machine(peak, 4096 * MIB, fails=dict.fromkeys(range(3000, 70000), End.INDEX_LIMIT))
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    assert 2960 <= found.batch < 3000
    assert found.fails_with is End.INDEX_LIMIT


def test_growth_that_is_not_affine_is_named_and_still_exact():
    machine = Machine(lambda b: 100 * MIB + b * b * 32 * 1024 + b * MIB // 2, 1024 * MIB)
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    assert abs(found.batch - truth(machine)) <= 1
    assert any("to the power" in note for note in found.notes)


def test_nothing_fits_says_by_how_many_bytes_and_what_would_help():
    machine = Machine(lambda b: 900 * MIB + b * MIB, 512 * MIB)
    with pytest.raises(GpudocError) as raised:
        find_largest(machine, limit_bytes=machine.limit, cap=100)
    assert f"{389 * MIB:,} bytes more" in raised.value.message
    assert "--memory-limit 947MiB" in raised.value.hint
    assert raised.value.exit_code == 1


def test_what_fails_only_later_lowers_the_largest_batch_and_is_named():
    machine = Machine(PEAKS["affine"], 512 * MIB, later=lambda b: 100 * MIB + b * 5 * MIB)
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    assert found.batch == 103
    settled = settle_largest(machine, found, steps=20)
    assert settled.settled
    assert settled.batch == 82
    assert any("fails in eval" in note for note in settled.notes)


def test_what_fails_only_after_many_steps_lowers_the_answer_until_the_whole_script_runs():
    machine = Machine(PEAKS["affine"], 512 * MIB)
    grown = {2: 1 * MIB, 20: 9 * MIB}
    tried = []

    def steady(batch, *, steps):
        tried.append((batch, steps))
        return machine.trial("steady", batch, machine.peak(batch) + grown[steps], stage="steady")

    machine.steady = steady
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    settled = settle_largest(machine, found, steps=20)
    assert (settled.batch, settled.fails_at, settled.settled) == (100, 101, True)
    assert tried[-1] == (100, 20)


def test_what_just_misses_the_whole_script_costs_one_launch_more():
    machine = Machine(PEAKS["affine"], 512 * MIB, later=lambda b: 102 * MIB + b * 4 * MIB)
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    before = found.launches
    settled = settle_largest(machine, found, steps=20)
    assert (settled.batch, settled.fails_at, settled.settled) == (102, 103, True)
    assert settled.launches == before + 2


def test_a_budget_that_does_not_reach_keeps_what_ran_and_says_what_is_predicted():
    machine = Machine(PEAKS["affine"], 1024 * MIB)
    machine.can_afford = lambda samples: samples < 300
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6)
    assert not found.is_proved
    assert found.predicted == pytest.approx(231, abs=1)
    assert 150 < found.batch <= 231  # ran in the calibrating process
    assert machine.fitted == []


def test_a_first_probe_far_below_the_limit_does_not_make_the_search_crawl():
    peak = PEAKS["small samples"]
    machine = Machine(peak, 512 * MIB, jitter=0.3 * MIB)
    line = MemoryLine(batch=1, peak_bytes=520 * MIB, bytes_per_sample=70_000 / 1.03)
    found = find_largest(machine, limit_bytes=machine.limit, cap=10**6, expected=line)
    expected = truth(Machine(peak, 512 * MIB))
    assert abs(found.batch - expected) <= 2 * MIB / 70_000
    assert machine.fitted[0] == 1
    assert found.launches <= 6
    assert found.num_oom <= 2
