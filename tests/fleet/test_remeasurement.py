"""The second measurement: what is chosen, and who is asked anew."""

from __future__ import annotations

import pytest

from gpudoc.fleet import remeasurement, stages
from gpudoc.fleet.record import Measure, MissingPart, Spot
from gpudoc.fleet.remeasurement import measure_again
from gpudoc.fleet.stages import QUICK, Scheme
from gpudoc.fleet.verdict import Suspect
from gpudoc.progress import SILENT
from tests.fleet.test_conductor import conductor, impatient, well  # noqa: F401

SCHEME = Scheme(times=QUICK, on_gpu=True)


def suspect(name: str, **changes) -> Suspect:
    measure = Measure(name=name, unit="GB/s", readings=(), **{"scope": "gpu", **changes})
    return Suspect(what="measure", at=(Spot(1, 0),), witnesses=(Spot(2, 0),), measure=measure)


@pytest.mark.parametrize(
    ("one", "stage"),
    [
        (suspect("matmul", load="together"), "measure_together"),
        (suspect("h2d"), "measure_alone"),
        (suspect("train_step", load="together"), "measure_steps"),
        (suspect("loader_batch", scope="node"), "measure_hosts"),
        (suspect("all_reduce", scope="pair"), "measure_pairs"),
        (suspect("all_reduce", scope="rail"), "measure_collectives"),
        (Suspect(what="digest", at=(Spot(1, 0),), witnesses=(Spot(2, 0),), product="mm"), "measure_digests"),
    ],
)
def test_the_stage_that_showed_it_runs_again_on_it_and_its_witnesses(monkeypatch, one, stage):
    ran = []
    monkeypatch.setattr(remeasurement, "suspects", lambda record: (one,))
    monkeypatch.setattr(stages, stage, lambda c, _: ran.append((c.attempt, [u.spot.node for u in c.units()])))
    measure_again(conductor(lambda rank, order: {}), SCHEME, SILENT)
    assert ran == [(2, [1, 2])]


def test_where_nothing_is_odd_nothing_is_measured_again(monkeypatch):
    monkeypatch.setattr(remeasurement, "suspects", lambda record: ())
    one = conductor(lambda rank, order: pytest.fail("an order was given"))
    measure_again(one, SCHEME, SILENT)
    assert one.attempt == 1


def silent(monkeypatch, play):
    monkeypatch.setattr(remeasurement, "suspects", lambda record: (Suspect(what="node", at=(Spot(1),)),))
    return conductor(play)


def test_a_node_that_is_still_silent_was_asked_twice(monkeypatch):
    one = silent(monkeypatch, lambda rank, order: {})
    one.roster.lose(1, MissingPart("died", "silent", "training"))
    # never heard, and its time is over
    monkeypatch.setattr(one._meeting, "lives", lambda rank: False)
    measure_again(one, SCHEME, SILENT)
    assert one.roster.nodes[1].missing.attempts == 2


@pytest.mark.parametrize(("answer", "attempts"), [(well(), 1), ({"answers": {"cuda:0": {"failed": "again"}}}, 2)])
def test_a_gpu_that_hung_is_tried_in_a_new_process(monkeypatch, answer, attempts):
    one = silent(monkeypatch, lambda rank, order: answer if order["do"] == "children" else {})
    one.roster.nodes[1].missing = MissingPart("hung", "cuda:0", "training")
    one.roster.nodes[1].units[0].gone = "cuda:0"
    measure_again(one, SCHEME, SILENT)
    assert one.roster.nodes[1].missing.attempts == attempts
