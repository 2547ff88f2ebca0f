"""What is measured, in which order, and who meets whom."""

from __future__ import annotations

import pytest

from gpudoc.errors import GpudocError
from gpudoc.fleet.stages import QUICK, Scheme, all_stages, check_names, rounds


def scheme(on_gpu=True, *only: str) -> Scheme:
    return Scheme(times=QUICK, on_gpu=on_gpu, only=only)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_everybody_meets_everybody_once_where_few_are(count):
    found = [frozenset(pair) for couples in rounds(count) for pair in couples]
    assert len(found) == len(set(found)) == count * (count - 1) // 2


def test_among_many_each_has_several_partners_and_nobody_is_in_two_pairs_at_once():
    found = rounds(1001)
    assert len(found) == 7
    for couples in found:
        places = [place for pair in couples for place in pair]
        assert len(places) == len(set(places)) >= 1000
    partners = {frozenset(pair) for couples in found for pair in couples}
    assert len(partners) == sum(len(couples) for couples in found)


def test_a_case_that_is_named_is_the_only_one_and_doctor_always_runs():
    stages = all_stages(scheme(True, "matmul", "digests"), most_units=8)
    assert [stage.name for stage in stages] == ["doctor", "cases", "cases", "digests"]
    assert list(scheme(True, "matmul").cases) == ["matmul"]
    assert list(scheme(True).cases) == ["copies", "device_memory", "matmul"]
    assert list(scheme(False).cases) == ["memory", "matmul"]


def test_sizes_go_from_8_bytes_to_8_gib():
    assert scheme(True).sizes[0] == 8
    assert scheme(True).sizes[-1] == 8 * 2**30


def test_a_part_that_does_not_exist_is_refused_with_those_that_do():
    check_names(("pairs", "copies"))
    with pytest.raises(GpudocError, match="no such part") as caught:
        check_names(("links",))
    assert "pairs" in caught.value.hint
