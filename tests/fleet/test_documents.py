"""A record as JSON and back: nothing lost, no host named, every mistake in a file said with its place."""

from __future__ import annotations

import json

import pytest

from gpudoc.doctor.model import Finding, Skipped, observe
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.fleet.documents import load_record, parse_record, record_to_json, save_record
from gpudoc.fleet.record import (
    SCHEMA,
    Digest,
    FleetGpu,
    FleetNode,
    FleetReading,
    FleetRecord,
    Measure,
    MissingPart,
    Spot,
)


def a_record() -> FleetRecord:
    finding = Finding(
        id="ecc_errors", confidence=0.9, title="cn17 has errors", evidence=(observe("host", "cn17.hpc", "nvml"),)
    )
    gpus = tuple(
        FleetGpu(index=i, model="NVIDIA H100 80GB HBM3", id=f"card{i}", capability=(9, 0), rail=f"mlx5_{i}")
        for i in range(2)
    )
    nodes = (
        FleetNode(
            gpus=gpus,
            host="cn17.hpc.example.org",
            id="aaaa",
            switch="leaf1",
            versions={"driver": "570.86.15", "nccl": Absent("torch has none")},
            clock_offset_s=0.001,
            doctor="broken",
            findings=(finding,),
            findings_again=("ecc_errors",),
            unchecked=(Skipped("nvlink_down", "no NVLink facts"),),
        ),
        FleetNode(
            host="cn18", missing=MissingPart("died", "cn18: connection reset", "matmul", 2), doctor=Absent("died")
        ),
    )
    readings = (
        FleetReading(at=(Spot(0, 0),), samples=(700.5, 701.25), context={"sm_clock_mhz": 1980.0}),
        FleetReading(at=(Spot(0, 1),), samples=(), failed="out of memory on cn17"),
    )
    return FleetRecord(
        nodes=nodes,
        measures=(
            Measure(name="matmul", scope="gpu", unit="TFLOP/s", parameters={"dtype": "bf16"}, readings=readings),
            Measure(
                name="sendrecv",
                scope="pair",
                unit="GB/s",
                readings=(FleetReading(at=(Spot(0), Spot(1)), samples=(48.0,)),),
            ),
        ),
        digests=(Digest(product="bf16 4096 seed 0", at=Spot(0, 1), seen={"ab": 9, "cd": 1}, hot=True),),
        made={"engine": "srun", "ranks": 3},
        seconds=12.5,
    )


def test_a_record_comes_back_as_it_was_but_for_the_hosts(tmp_path):
    record = a_record()
    back = load_record(save_record(tmp_path / "fleet.json", record))
    assert back.measures[0].readings[0] == record.measures[0].readings[0]
    assert back.measures[1].readings[0].at == (Spot(0), Spot(1))
    assert back.digests == record.digests
    assert back.made == record.made
    assert back.nodes[0].gpus == record.nodes[0].gpus
    assert back.nodes[0].versions == record.nodes[0].versions
    assert back.nodes[0].unchecked == record.nodes[0].unchecked
    assert back.nodes[0].doctor == "broken"
    assert back.nodes[0].findings_again == ("ecc_errors",)
    assert back.nodes[1].doctor == Absent("died")
    assert back.nodes[1].missing == MissingPart("died", "<node-1>: connection reset", "matmul", 2)


def test_no_host_is_named_in_the_document():
    text = json.dumps(record_to_json(a_record()))
    assert "cn17" not in text
    assert "cn18" not in text
    assert "out of memory on <node-0>" in text
    assert "<node-0> has errors" in text


def test_a_figure_that_is_not_finite_is_a_reading_that_failed():
    reading = FleetReading(at=(Spot(0, 0),), samples=(float("nan"), float("inf")))
    record = FleetRecord(
        nodes=(FleetNode(gpus=(FleetGpu(index=0),)),),
        measures=(Measure(name="h2d", scope="gpu", unit="GB/s", readings=(reading,)),),
    )
    back = parse_record(json.dumps(record_to_json(record)), "fleet.json")
    assert back.measures[0].readings[0].samples == ()
    assert back.measures[0].readings[0].failed == "no finite sample"


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.999])
def test_half_a_file_is_said_to_be_cut_off(tmp_path, share):
    path = save_record(tmp_path / "fleet.json", a_record())
    text = path.read_text().rstrip()
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(GpudocError) as problem:
        load_record(path)
    assert str(path) in problem.value.message
    assert "cut off" in problem.value.message or "not JSON" in problem.value.message
    assert problem.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "not JSON"),
        ("[1, 2]", "has schema None"),
        ('{"schema": "gpudoc.bench.v1"}', "has schema 'gpudoc.bench.v1'"),
        ('{"schema": "gpudoc.fleet.v2", "nodes": []}', "this gpudoc reads gpudoc.fleet.v1"),
        ('{"schema": "gpudoc.fleet.v1"}', "nodes is missing"),
        ('{"schema": "gpudoc.fleet.v1", "nodes": 3}', "nodes is int, not a list"),
        ('{"schema": "gpudoc.fleet.v1", "nodes": [7]}', "nodes[0] is int, not an object"),
        ('{"schema": "gpudoc.fleet.v1", "nodes": [], "seconds": NaN}', "NaN is not a JSON number"),
    ],
)
def test_what_is_no_record_is_refused_with_its_reason(text, said):
    with pytest.raises(GpudocError) as problem:
        parse_record(text, "fleet.json")
    assert said in problem.value.message
    assert problem.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["measures"][0]["readings"][0].update(at=[[5, 0]]), "no such node or GPU"),
        (lambda d: d["measures"][0]["readings"][0].update(samples=["fast"]), "'fast' is not a number"),
        (lambda d: d["measures"][0]["readings"][0].update(samples=[True]), "True is not a number"),
        (lambda d: d["measures"][0].update(scope="rack"), "'rack' is not one of gpu"),
        (lambda d: d["measures"][0].pop("readings"), "readings is missing"),
        (lambda d: d["nodes"][0].update(doctor="fine"), "'fine' is not one of healthy"),
        (lambda d: d["nodes"][1]["missing"].update(reason="bored"), "'bored' is not one of died"),
        (lambda d: d["digests"][0].update(at=[]), "no such node or GPU"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(change, said):
    document = record_to_json(a_record())
    change(document)
    with pytest.raises(GpudocError) as problem:
        parse_record(json.dumps(document), "fleet.json")
    assert said in problem.value.message
    assert SCHEMA in problem.value.message
