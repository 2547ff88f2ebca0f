"""What children say becomes readings, failures, digests and clocks of a record."""

from __future__ import annotations

import pytest

from gpudoc.facts.model import Absent
from gpudoc.fleet.documents import record_to_json
from gpudoc.fleet.ledger import Circumstances, Ledger, merge, readable_context
from gpudoc.fleet.record import FleetGpu, FleetNode, FleetRecord, MissingPart, Spot
from gpudoc.fleet.roster import Node, Roster, Unit

HERE = (Spot(0, 0),)


def sampled(**changes) -> dict[str, object]:
    return {
        "event": "sampled",
        "name": "matmul",
        "unit": "TFLOP/s",
        "parameters": {"dtype": "bf16"},
        "samples": [1.0, 2.0],
        **changes,
    }


def roster(*hosts: str) -> Roster:
    units = [[Unit(Spot(number, 0), number, "cuda:0")] for number in range(len(hosts))]
    return Roster([Node(host=host, ranks=[number], units=units[number]) for number, host in enumerate(hosts)])


def test_the_same_figure_of_two_gpus_is_one_measure_and_another_load_is_another():
    ledger = Ledger()
    ledger.take(HERE, sampled(), Circumstances())
    ledger.take((Spot(1, 0),), sampled(), Circumstances())
    ledger.take(HERE, sampled(), Circumstances(load="together"))
    ledger.take(HERE, sampled(), Circumstances(attempt=2))
    measures = ledger.record(roster("a", "b")).measures
    assert [(m.load, m.attempt, len(m.readings)) for m in measures] == [
        ("alone", 1, 2),
        ("together", 1, 1),
        ("alone", 2, 1),
    ]
    assert measures[0].readings[0].samples == (1.0, 2.0)


def test_a_wrong_result_is_no_figure():
    ledger = Ledger()
    ledger.take(HERE, sampled(corrupted="the product is off by 3"), Circumstances())
    (reading,) = ledger.record(roster("a")).measures[0].readings
    assert reading.samples == ()
    assert reading.failed == "wrong result: the product is off by 3"


def test_what_could_not_be_had_is_kept_with_its_reason():
    ledger = Ledger()
    ledger.fail(HERE, "train_step", "RuntimeError: no", Circumstances())
    (measure,) = ledger.record(roster("a")).measures
    assert (measure.unit, measure.readings[0].failed) == ("samples/s", "RuntimeError: no")


def test_digests_keep_how_often_and_the_library_beats_the_package():
    ledger = Ledger()
    ledger.described[0] = FleetNode(versions={"cublas": Absent("no Python package"), "torch": "2"})
    ledger.take(HERE, {"event": "digest", "product": "mm", "seen": {"a": 3}}, Circumstances(load="together"))
    ledger.take(HERE, {"event": "library", "cublas": "12.8.4"}, Circumstances())
    record = ledger.record(roster("a"))
    assert (record.digests[0].seen, record.digests[0].hot) == ({"a": 3}, True)
    assert record.nodes[0].versions == {"cublas": "12.8.4", "torch": "2"}


def test_a_clock_is_the_middle_of_all_looks_and_its_error_half_their_width():
    ledger = Ledger()
    ledger.look_at_clocks([0, 1], [[100.0, 103.0], [200.0, 203.2], [300.0, 302.9]])
    node = ledger.record(roster("a", "b")).nodes[1]
    assert node.clock_offset_s == pytest.approx(3.0)
    assert node.clock_error_s == pytest.approx(0.15)


def test_a_node_says_what_it_is_once_and_what_doctor_finds_again():
    told = record_to_json(FleetRecord(nodes=(FleetNode(gpus=(FleetGpu(index=0, model="H200"),), doctor="healthy"),)))
    ledger = Ledger()
    assert ledger.describe(HERE, 0, told, leads=True) == ""
    assert ledger.describe((), 0, told, leads=True) == ""
    node = ledger.record(roster("a")).nodes[0]
    assert (node.host, node.gpus[0].model, node.doctor, node.findings_again) == ("a", "H200", "healthy", ())


def test_half_a_description_is_said_to_be_one_and_the_node_is_not_healthy():
    ledger = Ledger()
    assert "not a complete" in ledger.describe(HERE, 0, {"nodes": [{"gpus": 7}]}, leads=True)
    node = ledger.record(roster("a")).nodes[0]
    assert isinstance(node.doctor, Absent)
    assert isinstance(node.gpus[0].model, Absent)


def test_a_rank_that_nobody_heard_of_has_no_host():
    nobody = Roster([Node(host="rank 3", missing=MissingPart("no gpudoc", "silent"))])
    assert isinstance(Ledger().record(nobody).nodes[0].host, Absent)


def test_of_the_counters_those_are_kept_that_a_record_knows():
    context = {
        "sm_clock_mhz": 1900.0,
        "temperature_c_max": 80.0,
        "throttled_a_share": 0.1,
        "throttled_b_share": 0.4,
        "x": 1,
    }
    assert readable_context(context) == {"sm_clock_mhz": 1900.0, "temperature_c": 80.0, "throttled_share": 0.4}


def test_a_group_failed_for_the_reason_of_the_one_that_did_not_only_lose_a_peer():
    lost = {"failed": "RuntimeError: Connection closed by peer"}
    own = {"failed": "RuntimeError: CUDA error: an illegal memory access"}
    assert merge([lost, own, {}]) == own["failed"]
    assert merge([lost, {}]) == lost["failed"]
    assert merge([{}, {"failed": ""}]) == ""
