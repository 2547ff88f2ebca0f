"""A whole record judged: planted faults found and nobody else, and what was not measured is never healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.errors import ExitCode
from gpudoc.facts.model import Absent
from gpudoc.fleet.record import Digest, FleetGpu, FleetNode, FleetReading, FleetRecord, Measure, MissingPart, Spot
from gpudoc.fleet.verdict import bad_hosts, headline, judge, suspects
from tests.fleet.simulated import Plan, again, build

PLANTED = {"slow": {Spot(3, 3): 9.0}, "links": {Spot(11, 5): 9.0}, "corrupt": {Spot(20, 1): 0.25}}


@pytest.fixture(scope="module")
def planted():
    record, truth = build(Plan(nodes=24, seed=3, **PLANTED))
    return record, again(record, truth)


@pytest.fixture(scope="module")
def verdict(planted):
    return judge(planted[1])


def test_a_healthy_fleet_is_healthy_and_nobody_is_named():
    record, truth = build(Plan(nodes=16, seed=1))
    verdict = judge(again(record, truth))
    assert (verdict.word, verdict.drained, verdict.findings) == ("healthy", (), ())
    assert verdict.exit_code is ExitCode.OK


def test_after_one_measurement_the_odd_ones_are_named_and_nobody_is_drained(planted):
    verdict = judge(planted[0])
    assert {one.at for one in verdict.named} == {(Spot(3, 3),), (Spot(11, 5),), (Spot(20, 1),)}
    assert verdict.drained == ()
    assert bad_hosts(planted[0], verdict) == ()
    # corruption is broken from the first wrong bit on
    assert verdict.word == "broken"


def test_after_the_second_the_planted_are_drained_and_nobody_else(planted, verdict):
    assert verdict.drained == (3, 11, 20)
    assert bad_hosts(planted[1], verdict) == ("cn0003", "cn0011", "cn0020")
    assert verdict.exit_code is ExitCode.BAD_ANSWER


def test_who_has_no_name_of_a_host_is_not_for_a_script_to_drain(planted, verdict):
    nodes = list(planted[1].nodes)
    nodes[3], nodes[11] = replace(nodes[3], host="rank 3"), replace(nodes[11], host="cn0011; reboot")
    assert bad_hosts(replace(planted[1], nodes=tuple(nodes)), verdict) == ("cn0020",)


def test_suspects_are_the_odd_ones_with_others_beside_them_on_other_nodes(planted):
    found = suspects(planted[0])
    assert {spot for one in found for spot in one.at} == {Spot(3, 3), Spot(11, 5), Spot(20, 1)}
    for one in found:
        assert one.witnesses
        assert not {spot.node for spot in one.witnesses} & {spot.node for spot in one.at}
    assert {one.measure.name for one in found if one.measure} == {"matmul", "train_step", "sendrecv"}
    assert suspects(planted[1]) == ()


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_drained_in_healthy_fleets_of_any_seed(seed):
    record, truth = build(Plan(nodes=12, gpus=4, seed=100 + seed))
    assert judge(again(record, truth)).drained == ()


def test_a_job_loses_what_its_slowest_gpu_lacks(planted, verdict):
    loss = verdict.loss
    assert loss.slowest == (Spot(3, 3),)
    # nine standard deviations of 1.5 %
    assert loss.now == pytest.approx(0.126, abs=0.015)
    assert loss.without_drained < 0.07
    assert "3 to drain: node 3, node 11, node 20" in headline(planted[1], verdict)


def test_a_node_that_did_not_answer_makes_no_verdict_healthy():
    record, _ = build(Plan(nodes=12, gpus=4, seed=2))
    nodes = (*record.nodes, FleetNode(missing=MissingPart("hung", "no answer in 300 s", "all_reduce")))
    verdict = judge(replace(record, nodes=nodes))
    assert verdict.word == "unknown"
    assert verdict.exit_code is ExitCode.BAD_ANSWER
    assert [one.finding.id for one in verdict.named] == ["node_silent"]
    assert Spot(12) in suspects(replace(record, nodes=nodes))[0].at


def test_a_record_without_measures_is_unknown_and_not_healthy():
    record, _ = build(Plan(nodes=4, seed=3))
    assert judge(replace(record, measures=(), digests=())).word == "unknown"
    assert judge(FleetRecord(nodes=())).word == "unknown"


def test_a_gpu_that_was_not_measured_is_said_and_so_is_a_doctor_that_said_nothing():
    record, _ = build(Plan(nodes=12, gpus=4, seed=4))
    measures = tuple(
        replace(m, readings=tuple(r for r in m.readings if r.at != (Spot(5, 2),))) if m.name == "matmul" else m
        for m in record.measures
    )
    nodes = tuple(replace(n, doctor=Absent("timed out")) if i == 7 else n for i, n in enumerate(record.nodes))
    verdict = judge(replace(record, measures=measures, nodes=nodes))
    told = {(one.what, one.at): one.because for one in verdict.unjudged}
    assert told["matmul dtype=bf16 alone", (Spot(5, 2),)] == "the record has no reading"
    assert told["doctor", (Spot(7),)] == "timed out"


def test_two_gpus_are_too_few_to_judge_and_that_is_unknown():
    record, _ = build(Plan(nodes=1, gpus=2, seed=5))
    verdict = judge(replace(record, digests=()))
    assert verdict.word == "unknown"
    assert any("too few" in one.because for one in verdict.unjudged)


def failing(attempts):
    def measure(attempt, failed):
        readings = [FleetReading(at=(Spot(n, 0),), samples=(100.0, 101.0)) for n in range(5) if n not in failed]
        readings += [FleetReading(at=(Spot(n, 0),), samples=(), failed="CUDA error 719") for n in failed]
        return Measure(name="matmul", scope="gpu", unit="x", readings=tuple(readings), attempt=attempt)

    record, _ = build(Plan(nodes=5, gpus=1, seed=6))
    return replace(record, digests=(), measures=tuple(measure(i + 1, failed) for i, failed in enumerate(attempts)))


@pytest.mark.parametrize(
    ("attempts", "named", "drained"),
    [([{2}], 1, ()), ([{2}, {2}], 1, (2,)), ([{2}, set()], 1, ()), ([{0, 1, 2, 3, 4}], 0, ())],
)
def test_what_breaks_on_one_gpu_only_is_its_fault_and_twice_is_a_drain(attempts, named, drained):
    verdict = judge(failing(attempts))
    assert len([one for one in verdict.named if one.finding.id == "measure_fails_here"]) == named
    assert verdict.drained == drained


def test_corruption_that_does_not_come_back_is_broken_and_does_not_drain():
    record, _ = build(Plan(nodes=6, gpus=2, seed=7))
    wrong = tuple(replace(d, seen={"x": 16}) if d.at == Spot(4, 1) and d.hot else d for d in record.digests)
    second = tuple(Digest(product=d.product, at=d.at, seen=d.seen, attempt=2) for d in record.digests)
    verdict = judge(replace(record, digests=(*wrong, *second)))
    assert [one.finding.id for one in verdict.named] == ["gpu_corrupts_silently"]
    assert (verdict.word, verdict.drained) == ("broken", ())
    assert "intermittent corruption" in str(verdict.findings[0].evidence)


def test_an_ignored_finding_is_as_if_it_had_not_been_made(planted):
    verdict = judge(planted[1], ("gpu_corrupts_silently", "link_slower_than_peers"))
    assert verdict.drained == (3,)


def test_a_slow_disk_is_told_and_never_drains():
    record, truth = build(Plan(nodes=30, gpus=1, seed=8))
    measures = tuple(
        replace(m, readings=tuple(replace(r, samples=(300.0,) * 5) if r.at[0].node == 9 else r for r in m.readings))
        if m.name == "loader"
        else m
        for m in record.measures
    )
    slow = replace(record, measures=measures)
    truth.centres[next(m.key for m in measures if m.name == "loader")][1][9, 0] = 300.0
    verdict = judge(again(slow, truth))
    assert [(one.at, one.confirmed, one.drain) for one in verdict.named] == [((Spot(9),), True, False)]
    assert verdict.word == "warning"


def test_a_copy_between_two_gpus_is_expected_at_one_of_them_only():
    record, _ = build(Plan(nodes=4, gpus=2, seed=9, only=("matmul",)))
    copies = Measure(
        name="p2p",
        scope="gpu",
        unit="GB/s",
        parameters={"from": 0, "to": 1},
        readings=tuple(FleetReading(at=(Spot(n, 0),), samples=(300.0,) * 3) for n in range(3)),
    )
    unjudged = judge(replace(record, measures=(*record.measures, copies))).unjudged
    assert [one.at for one in unjudged if one.what == copies.key] == [(Spot(3, 0),)]


def test_halves_and_the_whole_have_no_peers_and_are_not_called_unjudged():
    record, _ = build(Plan(nodes=4, gpus=2, seed=10, only=("matmul",)))
    whole = FleetReading(at=tuple(Spot(n) for n in range(4)), samples=(40.0,) * 3)
    everybody = Measure(name="all_reduce", scope="group", unit="GB/s", parameters={"bytes": 1 << 30}, readings=(whole,))
    verdict = judge(replace(record, measures=(*record.measures, everybody)))
    assert (verdict.word, verdict.unjudged) == ("healthy", ())


def test_processes_on_cpus_are_said_to_be_no_gpus():
    nodes = tuple(FleetNode(gpus=(FleetGpu(index=0, model="AMD EPYC"),)) for _ in range(2))
    record = FleetRecord(nodes=nodes)
    assert headline(record, judge(record)).startswith("2 nodes, 2 processes on CPUs, each called a GPU below")
    known = FleetRecord(nodes=(*nodes, FleetNode(gpus=(FleetGpu(index=0, model="H100", capability=(9, 0)),))))
    assert headline(known, judge(known)).startswith("3 nodes, 3 GPUs")
