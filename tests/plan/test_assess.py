import json
from types import SimpleNamespace

import pytest

from gpudoc import plan
from gpudoc.errors import GpudocError
from gpudoc.plan.assess import _doubt, _interval, _spare
from gpudoc.plan.target import parse_target
from gpudoc.units import MIB
from gpudoc.workload.build import load_workload


@pytest.fixture(scope="module")
def result():
    return plan.targets(load_workload("quickstart"), ["RTX 3090", "T4", "1GiB"])


def test_every_target_gets_its_answer_in_order(result):
    assert [answer.target.name for answer in result.answers] == ["RTX 3090", "T4", "1GiB"]
    large, _, small = result.answers
    assert large.largest_batch > small.largest_batch > 0
    assert large.precision == "bf16"
    assert result.answers[1].precision == "fp16"
    assert all(answer.fits for answer in result.answers)


def test_the_peak_is_inside_the_memory_and_inside_its_interval(result):
    for answer in result.answers:
        assert answer.peak_bytes <= answer.target.memory_bytes
        assert answer.interval[0] <= answer.peak_bytes <= answer.interval[1]
        low, high = answer.largest_batch_interval
        assert low <= answer.largest_batch <= high


def test_a_time_is_only_given_where_the_card_is_known(result):
    assert result.answers[0].least_step_s > 0
    assert result.answers[2].least_step_s is None


def test_the_document_has_what_the_contract_names(result):
    documents = json.loads(json.dumps(result.documents()))
    for document in documents:
        assert {"target", "memory_bytes", "fits", "largest_batch", "peak_bytes_at_1"} <= set(document)
        assert {"bytes_per_sample", "composition", "interval", "advice", "basis"} <= set(document)
        assert sum(document["composition"].values()) > 0
    assert documents[0]["basis"] == "traced"


def test_no_target_at_all_is_a_usage_error():
    with pytest.raises(GpudocError, match="name a target"):
        plan.targets(load_workload("quickstart"), [" "])


class Holes:
    """A need whose batches fit with holes between them, as fragmentation leaves them."""

    def __init__(self, by_share, behind=(), rising=None):
        self.by_share, self.behind, self.rising = by_share, behind, rising

    def largest_near(self, guess, share, *, rising=False):
        return self.rising if rising and self.rising is not None else self.by_share.get(share, guess)

    def fits(self, batch):
        return batch in self.behind


def test_the_interval_holds_the_point_although_a_larger_batch_fits_into_less_memory():
    assert _interval(Holes({0.95: 96, 1.05: 95}), 91, 0.05) == (91, 96)
    assert _interval(Holes({0.95: 30, 1.05: 34}), 32, 0.05) == (30, 34)


def test_the_interval_reaches_to_what_fits_beside_the_smallest_context_known():
    assert _interval(Holes({0.75: 24, 1.25: 40, 1.5: 48}), 32, 0.25, spare=0.25) == (24, 48)
    t4, a100 = (parse_target(name) for name in ("T4", "A100"))
    assert _spare(t4) == pytest.approx(97 * MIB / t4.allocator_bytes)
    assert _spare(a100) == 0


def test_the_interval_reaches_over_a_hole_to_the_batches_that_fit_behind_it():
    assert _interval(Holes({0.95: 90, 1.05: 92}, {94, 97}), 91, 0.05) == (90, 97)
    assert _interval(Holes({0.95: 0, 1.05: 0}), 0, 0.05) == (0, 0)


def test_the_interval_holds_what_segments_at_rising_addresses_would_give():
    assert _interval(Holes({0.95: 90, 1.05: 92}, rising=86), 91, 0.05) == (86, 92)


def plan_with(op, probed=None):
    return SimpleNamespace(memory=SimpleNamespace(blocks=[SimpleNamespace(op=op)]), probed=probed)


def test_convolutions_widen_the_interval_by_the_workspaces_that_are_not_modelled():
    assert _doubt(plan_with("mm")) < _doubt(plan_with("convolution")) < _doubt(plan_with("mm", "ran on the CPU"))
