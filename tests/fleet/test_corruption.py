"""Votes of equal GPUs on equal products: who is wrong, who cannot be judged, and who was wrong twice."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.facts.model import Absent
from gpudoc.fleet.corruption import find_corrupt
from gpudoc.fleet.record import Digest, FleetGpu, FleetNode, FleetRecord, Spot

SOFTWARE = {"driver": "570", "cublas": "12.8"}


def fleet(digests, nodes=4, software=None):
    made = software or {}
    return FleetRecord(
        nodes=tuple(
            FleetNode(gpus=(FleetGpu(index=0, model="H100"),), versions=made.get(n, SOFTWARE)) for n in range(nodes)
        ),
        digests=tuple(digests),
    )


def digests(values, **more):
    return [Digest(product="p", at=Spot(n, 0), seen={value: 4}, **more) for n, value in enumerate(values)]


def test_the_one_that_differs_from_equal_gpus_is_wrong():
    (found,), unjudged = find_corrupt(fleet(digests(["a", "a", "b", "a"])))
    assert (found.at, found.wrong, found.voters, found.alone) == (Spot(2, 0), 4, 3, False)
    assert not found.confirmed
    assert unjudged == []


def test_it_is_confirmed_only_when_a_second_run_is_wrong_too():
    first = digests(["a", "a", "b", "a"])
    again = [replace(one, attempt=2) for one in first]
    assert find_corrupt(fleet([*first, *again]))[0][0].confirmed
    right = [replace(one, attempt=2, seen={"a": 4}) for one in first]
    (found,), _ = find_corrupt(fleet([*first, *right]))
    assert found.measured_again
    assert not found.confirmed


def test_a_gpu_that_disagrees_with_itself_is_wrong_without_any_peer():
    one = Digest(product="p", at=Spot(0, 0), seen={"a": 15, "c": 1}, hot=True)
    (found,), _ = find_corrupt(fleet([one], nodes=1))
    assert (found.alone, found.hot_only, found.wrong, found.repeats) == (True, True, 1, 16)


def test_two_that_differ_are_both_named_and_neither_is_judged():
    found, _ = find_corrupt(fleet(digests(["a", "b"]), nodes=2))
    assert {one.at for one in found} == {Spot(0, 0), Spot(1, 0)}
    assert all(one.undecided == (Spot(0, 0), Spot(1, 0)) and not one.confirmed for one in found)


def test_other_drivers_may_give_other_bits():
    other = {2: {"driver": "575", "cublas": "12.8"}, 3: {"driver": "575", "cublas": "12.8"}}
    found, unjudged = find_corrupt(fleet(digests(["a", "a", "b", "b"]), software=other))
    assert found == []
    assert unjudged == []


def test_a_gpu_without_equals_or_without_a_known_version_is_not_judged():
    odd = {1: {"driver": "575", "cublas": "12.8"}, 2: {"driver": "570", "cublas": Absent("torch has none")}}
    found, unjudged = find_corrupt(fleet(digests(["a", "b", "c", "a"]), software=odd))
    assert found == []
    reasons = {spot: one.because for one in unjudged for spot in one.at}
    assert "no equal GPU" in reasons[Spot(1, 0)]
    assert "cublas is not known: torch has none" in reasons[Spot(2, 0)]


def test_a_product_that_is_not_deterministic_anywhere_accuses_nobody():
    seen = [Digest(product="p", at=Spot(n, 0), seen={f"x{n}": 1, "a": 3}) for n in range(4)]
    found, unjudged = find_corrupt(fleet(seen))
    assert found == []
    assert "not deterministic" in unjudged[0].because


def test_another_algorithm_is_another_product():
    mixed = [replace(one, algorithm="split-k" if n > 1 else "plain") for n, one in enumerate(digests("aabb"))]
    assert find_corrupt(fleet(mixed))[0] == []
