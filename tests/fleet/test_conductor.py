"""Rank 0's orders: who answers is kept, who hangs, dies or garbles is named, and groups go on without them."""

from __future__ import annotations

import json

import pytest

from gpudoc.fleet import meeting
from gpudoc.fleet.conductor import Conductor, Exchange, Group
from gpudoc.fleet.ledger import Circumstances, Ledger
from gpudoc.fleet.meeting import Meeting
from gpudoc.fleet.place import EnginePlace
from gpudoc.fleet.record import Spot
from gpudoc.fleet.roster import Node, Roster, Unit
from gpudoc.progress import SILENT

ALL = Exchange(operations=("all_reduce",), sizes=(8,))
SWEPT = {"event": "swept", "name": "all_reduce", "unit": "GB/s", "parameters": {"bytes": 8}, "samples": [1.0]}


class Players(dict):
    """A store whose other ranks answer an order in the moment that it is given."""

    def __init__(self, play):
        super().__init__()
        self.play = play

    def set(self, key, value):
        self[key] = value.encode()
        if key.startswith("order/"):
            _, number, rank = key.split("/")
            answer = self.play(int(rank), json.loads(value))
            if answer is not None:
                self[f"reply/{number}/{rank}"] = answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(meeting, "SILENCE_S", 0.05)


def conductor(play, nodes: int = 3) -> Conductor:
    found = [Node(host=f"n{n}", ranks=[n], units=[Unit(Spot(n, 0), n, "cuda:0")]) for n in range(nodes)]
    here = Meeting(Players(play), EnginePlace(engine="srun", world=nodes))
    return Conductor(here, Roster(found), Ledger(), SILENT)


def well(*events):
    return {"answers": {"cuda:0": {"events": list(events), "failed": "", "hung": False}}}


def exchange_all(one: Conductor) -> None:
    units = tuple(one.roster.units())
    one.exchange([Group(units, tuple(unit.spot for unit in units))], ALL, Circumstances(scope="group"), "testing")


def readings(one: Conductor):
    return [reading for m in one.ledger.record(one.roster).measures for reading in m.readings]


def test_a_group_gives_the_figures_of_its_first_rank_once():
    orders = {}

    def play(rank, order):
        orders[rank] = order["orders"]["cuda:0"]
        return well(SWEPT)

    one = conductor(play)
    exchange_all(one)
    (reading,) = readings(one)
    assert (reading.at, reading.samples) == ((Spot(0, 0), Spot(1, 0), Spot(2, 0)), (1.0,))
    assert [orders[rank]["rank"] for rank in range(3)] == [0, 1, 2]
    assert len({order["id"] for order in orders.values()}) == 1
    assert not orders[0]["one_node"]


def test_where_one_is_silent_it_is_named_and_the_others_meet_once_more():
    ids = []

    def play(rank, order):
        ids.append(order["orders"]["cuda:0"]["id"])
        if rank == 1:
            return None
        failed = {"events": [], "failed": "RuntimeError: Connection closed by peer", "hung": False}
        return well(SWEPT) if order["orders"]["cuda:0"]["world"] == 2 else {"answers": {"cuda:0": failed}}

    one = conductor(play)
    exchange_all(one)
    (reading,) = readings(one)
    assert (reading.at, reading.samples) == ((Spot(0, 0), Spot(2, 0)), (1.0,))
    assert one.roster.nodes[1].missing.reason == "died"
    assert one.roster.nodes[1].missing.during == "testing"
    assert len(set(ids)) == 2


def test_a_gpu_that_hangs_is_left_out_and_its_node_named():
    def play(rank, order):
        hung = {"events": [], "failed": "nothing was heard", "hung": True}
        return {"answers": {"cuda:0": hung}} if rank == 2 else well(SWEPT)

    one = conductor(play)
    exchange_all(one)
    assert one.roster.nodes[2].missing.reason == "hung"
    assert [unit.spot.node for unit in one.roster.units()] == [0, 1]
    assert readings(one)[0].at == (Spot(0, 0), Spot(1, 0))


def test_a_group_in_which_nobody_is_lost_fails_with_the_reason():
    def play(rank, order):
        failed = {"events": [], "failed": "RuntimeError: NCCL error: unhandled system error", "hung": False}
        return {"answers": {"cuda:0": failed}}

    one = conductor(play)
    exchange_all(one)
    (reading,) = readings(one)
    assert "NCCL error" in reading.failed
    assert [node.missing for node in one.roster.nodes] == [None, None, None]


def test_an_answer_that_is_cut_off_is_named():
    one = conductor(lambda rank, order: b'{"answers": {' if rank == 1 else well(SWEPT))
    exchange_all(one)
    assert one.roster.nodes[1].missing.reason == "unreadable"


def test_a_second_measurement_is_marked_and_on_the_chosen_nodes_in_new_processes():
    told = []

    def play(rank, order):
        told.append((rank, order["do"]))
        return well({**SWEPT, "event": "sampled"}) if order["do"] == "children" else {}

    one = conductor(play)
    one.begin_again({0, 2})
    assert told == [(0, "restart"), (2, "restart")]
    assert [unit.spot.node for unit in one.units()] == [0, 2]
    one.measure([(unit, {"do": "steps"}) for unit in one.units()], ("train_step",), Circumstances(), 1.0, "testing")
    assert {m.attempt for m in one.ledger.record(one.roster).measures} == {2}


def test_a_unit_without_an_answer_has_a_failed_reading_under_each_name():
    one = conductor(lambda rank, order: {"failed": "OSError: no"} if rank == 0 else well(), nodes=2)
    one.measure([(unit, {"do": "cases"}) for unit in one.units()], ("h2d", "matmul"), Circumstances(), 1.0, "testing")
    assert {(reading.at, reading.failed) for reading in readings(one)} == {((Spot(0, 0),), "OSError: no")}
    assert len(readings(one)) == 2
