"""What a script's processes told is read as it grows: one Seen per process, nothing twice, nothing torn."""

from __future__ import annotations

import json
import os

import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.script.hook import FOLDER, INSIDE, EventReader, environment, read
from gpudoc.script.messages import HookOrder


def steps(first, count, *, loader=None, rank=None):
    total = {"steps": first + count, "seconds": 2.0, "wait_s": 1.0, "evaluate_s": 0.0, "samples": 8}
    rest = {"device": "cpu", "device_name": None, "parameters": "float32", "autocast": None, "tf32": None}
    told = {"kind": "steps", "at": 1.0, "first": first, "count": count, "loader": loader, "total": total, "rank": rank}
    return {**told, **rest, "world": None, "peak_bytes": 5}


def write(path, *events, end="\n"):
    with path.open("a") as file:
        file.write("\n".join(json.dumps(event) for event in events) + end)


def test_the_inside_stands_first_and_the_users_own_path_stays(tmp_path):
    variables = environment(tmp_path, HookOrder(purpose="look"), {"PYTHONPATH": "/mine", "A": "b"})
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(INSIDE), "/mine"]
    assert variables["A"] == "b"
    assert json.loads((tmp_path / "order.json").read_text())["purpose"] == "look"
    assert variables[FOLDER] == str(tmp_path)
    assert environment(tmp_path, HookOrder(purpose="look"), {})["PYTHONPATH"] == str(INSIDE)


def test_each_read_takes_what_is_new_and_leaves_a_torn_line(tmp_path):
    reader = EventReader(tmp_path)
    assert reader.read() == ()
    path = tmp_path / "0-7.jsonl"
    write(path, steps(0, 2), end="\n{")
    (seen,) = reader.read()
    assert [event.first for event in seen.steps] == [0]
    path.write_text(path.read_text()[:-1])
    write(path, steps(2, 1), {"kind": "measured", "at": 1.0})
    (seen,) = reader.read()
    assert [event.first for event in seen.steps] == [0, 2]
    assert seen.measured
    assert seen.total.steps == 3
    assert reader.read() == (seen,) == read(tmp_path)


def test_a_long_run_keeps_its_last_steps_only(tmp_path):
    write(tmp_path / "0-7.jsonl", steps(0, 2), steps(2, 5))
    (seen,) = EventReader(tmp_path, keep_steps=False).read()
    assert [event.first for event in seen.steps] == [2]
    assert seen.total.steps == 7


def test_processes_are_ordered_by_the_rank_that_they_tell(tmp_path):
    for pid, rank in ((8, 10), (9, 2)):
        write(tmp_path / f"0-{pid}.jsonl", steps(0, 1, rank=rank))
    assert [seen.rank for seen in read(tmp_path)] == [2, 10]


def test_what_is_no_event_is_a_fault_that_names_the_file(tmp_path):
    write(tmp_path / "0-7.jsonl", {"kind": "nothing"})
    with pytest.raises(GpudocError, match=r"0-7\.jsonl") as caught:
        read(tmp_path)
    assert caught.value.exit_code is ExitCode.FAULT
