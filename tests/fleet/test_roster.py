"""Who takes part: GPUs shared out among the processes that see them, and who is named instead."""

from __future__ import annotations

import pytest

from gpudoc.fleet.record import MissingPart, Spot
from gpudoc.fleet.roster import make_roster


def hello(host: str, **changes) -> dict[str, object]:
    devices = {"cuda:0": "0000:0f:00.0", "cuda:1": "0000:10:00.0"}
    plain = {"host": host, "version": "1", "kind": "cuda", "problem": "", "devices": devices}
    return {**plain, **changes}


def test_one_process_of_a_node_has_all_its_gpus():
    roster = make_roster({0: hello("a"), 1: hello("b")}, 2, "1", ())
    assert [(unit.spot, unit.rank, unit.device) for unit in roster.units()] == [
        (Spot(0, 0), 0, "cuda:0"),
        (Spot(0, 1), 0, "cuda:1"),
        (Spot(1, 0), 1, "cuda:0"),
        (Spot(1, 1), 1, "cuda:1"),
    ]
    assert roster.leaders() == [0, 1]


def test_several_processes_that_see_the_same_gpus_have_one_each():
    roster = make_roster({0: hello("a"), 1: hello("a")}, 2, "1", ())
    assert [(unit.spot, unit.rank, unit.device) for unit in roster.units()] == [
        (Spot(0, 0), 0, "cuda:0"),
        (Spot(0, 1), 1, "cuda:1"),
    ]


def test_processes_to_which_the_engine_shows_one_gpu_each_have_that_one():
    shown = [{"cuda:0": "0000:0f:00.0"}, {"cuda:0": "0000:10:00.0"}]
    roster = make_roster({rank: hello("a", devices=shown[rank]) for rank in (0, 1)}, 2, "1", ())
    assert [(unit.rank, unit.device) for unit in roster.units()] == [(0, "cuda:0"), (1, "cuda:0")]


def test_every_cpu_rank_is_one():
    told = {rank: hello("a", kind="cpu", devices={"cpu": ""}) for rank in range(3)}
    assert [unit.rank for unit in make_roster(told, 3, "1", ()).units()] == [0, 1, 2]


def test_who_else_computes_on_a_node_is_kept_by_its_host():
    told = {
        0: hello("a"),
        1: hello("b", sharers="other processes compute on cuda:1: ann's python"),
        2: hello("b", sharers=""),
    }
    assert [node.sharers for node in make_roster(told, 3, "1", ()).nodes] == [
        [],
        ["other processes compute on cuda:1: ann's python"],
    ]


def test_a_node_without_a_gpu_among_others_is_named_and_still_examined():
    told = {0: hello("a"), 1: hello("b", kind="cpu", devices={"cpu": ""}, problem="the driver is not loaded")}
    roster = make_roster(told, 2, "1", ())
    assert roster.nodes[1].units == []
    assert roster.nodes[1].missing == MissingPart("died", "the driver is not loaded", "looking for its GPUs")
    assert roster.leaders() == [0, 1]


def test_who_did_not_come_is_named_by_the_host_that_the_engine_knows():
    roster = make_roster({0: hello("n1.cluster")}, 2, "1", ("n1", "n2"))
    assert [node.host for node in roster.nodes] == ["n1.cluster", "n2"]
    assert roster.nodes[1].missing.reason == "no gpudoc"


def test_who_did_not_come_is_a_rank_where_no_host_is_known():
    roster = make_roster({0: hello("a")}, 3, "1", ())
    assert [node.host for node in roster.nodes] == ["a", "rank 1", "rank 2"]


def test_a_greeting_that_is_cut_off_or_says_nothing_of_devices_is_named():
    told = {0: hello("a"), 1: "12 bytes that are not JSON", 2: hello("b", devices="cuda:0")}
    roster = make_roster(told, 3, "1", ())
    reasons = {node.host: node.missing.reason for node in roster.nodes if node.missing}
    assert reasons == {"rank 1": "unreadable", "b": "unreadable"}


def test_a_rank_that_is_lost_takes_its_gpus_with_it_and_the_next_one_leads():
    roster = make_roster({0: hello("a"), 1: hello("a"), 2: hello("b")}, 3, "1", ())
    roster.lose(0, MissingPart("died", "silent", "training"))
    roster.lose(1, MissingPart("hung", "later", "training"))
    assert roster.leaders() == [2]
    assert {unit.spot.node for unit in roster.units()} == {1}
    # the first reason stands
    assert roster.nodes[0].missing.because == "silent"
    assert roster.nodes[0].lost == [0, 1]


@pytest.mark.parametrize("host", ["n1;reboot", "n1\nn2", "-rf", "", "a b", "n" * 300, None, 7])
def test_what_cannot_be_the_name_of_a_host_is_no_node(host):
    """The names go to scripts that drain nodes."""
    roster = make_roster({0: hello("n1"), 1: hello(host)}, 2, "1", ())
    assert [node.host for node in roster.nodes] == ["n1", "rank 1"]
    assert roster.nodes[1].missing == MissingPart("unreadable", "a greeting without a host name", "joining")


def test_a_host_that_the_engine_does_not_know_is_no_node():
    roster = make_roster({0: hello("n1.cluster"), 1: hello("n7")}, 2, "1", ("n1", "n2"))
    assert [node.host for node in roster.nodes] == ["n1.cluster", "rank 1"]
    assert "n7, which is not one of the job's hosts" in roster.nodes[1].missing.because
