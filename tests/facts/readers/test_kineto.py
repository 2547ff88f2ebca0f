from __future__ import annotations

import gzip
import json
import sqlite3

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.readers import kineto as reader
from gpudoc.facts.readers.genre import is_trace
from gpudoc.facts.readers.kineto import read_trace
from gpudoc.facts.readers.trace import TraceGather
from tests.fakes.traces import Step, planted, write_nsys, write_nsys_lines


def test_a_trace_is_known_by_its_beginning_packed_or_not(tmp_path):
    path = planted(Step()).write(tmp_path / "t.json")
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert is_trace(path)
    assert is_trace(packed)
    assert read_trace(path).devices == read_trace(packed).devices
    (tmp_path / "log").write_text("step 1 loss 2.0\n")
    (tmp_path / "report.json").write_text('{"schema": "gpudoc.doctor.v1"}')
    assert not any(is_trace(tmp_path / name) for name in ("log", "report.json", "missing", "."))


def test_rank_steps_and_work_are_read(tmp_path):
    made = planted(Step(kernels=3), steps=4)
    made.rank = 5
    trace = read_trace(made.write(tmp_path / "t.json"))
    assert (trace.rank, len(trace.steps), len(trace.devices[0]), trace.is_cut) == (5, 4, 12, False)
    assert all(work.asked is not None and work.asked < work.start for work in trace.devices[0])


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_that_ends_in_the_middle_is_read_up_to_there(tmp_path, share):
    whole = planted(Step(), steps=30)
    path = whole.write(tmp_path / "t.json")
    path = whole.write(path, cut=int(share * path.stat().st_size))
    trace = read_trace(path)
    assert trace.is_cut
    assert 0 < len(trace.devices[0]) < 300
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(path.read_bytes())[:-12])
    assert read_trace(packed).is_cut


def test_an_event_that_is_deeper_than_any_ends_the_trace(tmp_path):
    whole = planted(Step(), steps=4)
    path = whole.write(tmp_path / "t.json")
    text = path.read_text()
    path.write_text(text[: len(text) // 2].rpartition("},")[0] + '}, {"args": ' + "[" * 100_000)
    trace = read_trace(path)
    assert trace.is_cut
    assert trace.devices[0]


def test_events_are_read_in_pieces_of_any_size(tmp_path, monkeypatch):
    path = planted(Step(), steps=20).write(tmp_path / "t.json")
    expected = read_trace(path)
    monkeypatch.setattr(reader, "_CHUNK", 700)
    assert read_trace(path) == expected


def test_steps_without_marks_go_from_one_optimizer_step_to_the_next(tmp_path):
    made = planted(Step(), steps=4)
    made.events = [event for event in made.events if "ProfilerStep" not in event["name"]]
    for at in (1000.0, 3000.0, 6000.0):
        made.span("user_annotation", "Optimizer.step#AdamW.step", at, 100.0)
    assert read_trace(made.write(tmp_path / "t.json")).steps == ((1100.0, 3100.0), (3100.0, 6100.0))


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "ts": "soon", "dur": 1, "name": "a"},
        {"ph": "X", "ts": True},
        {"ph": "X", "ts": 1, "dur": 2, "cat": None, "args": [1]},
        {"ph": "X", "ts": 1, "dur": -5, "cat": "kernel", "args": {"device": "zero"}},
        ["ph", "X"],
        None,
    ],
)
def test_events_of_no_use_are_left_out(tmp_path, event):
    made = planted(Step(), steps=2)
    expected = read_trace(made.write(tmp_path / "a.json")).devices
    made.events.insert(3, event)
    assert read_trace(made.write(tmp_path / "b.json")).devices == expected


def test_a_trace_of_something_else_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "chrome.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "cat": "v8", "name": "GC"}]}))
    with pytest.raises(GpudocError, match="contains no operator"):
        read_trace(path)
    base = sqlite3.connect(tmp_path / "other.sqlite")
    base.execute("CREATE TABLE birds (name)")
    base.close()
    with pytest.raises(GpudocError, match="not from Nsight Systems"):
        read_trace(tmp_path / "other.sqlite")
    (tmp_path / "torn.sqlite").write_bytes(b"SQLite format 3\x00" + b"\xff" * 200)
    with pytest.raises(GpudocError, match="cannot be read"):
        read_trace(tmp_path / "torn.sqlite")


def test_a_database_that_is_damaged_where_its_tables_are_described_is_refused_in_a_sentence(tmp_path):
    """SQLite quotes the place in its message, and the message is then no text."""
    path = write_nsys(tmp_path / "trace.sqlite", planted(Step(), steps=2))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"CREATE TABLE NVTX_EVENTS", b"CREATE TABLX \xd0\xd0\xd0X_EVENTS"))
    assert path.read_bytes() != whole
    with pytest.raises(GpudocError, match="cannot be read"):
        read_trace(path)


def test_a_few_bytes_of_gzip_stand_for_no_more_events_than_a_file_of_their_length_can_hold(tmp_path, monkeypatch):
    added = []
    monkeypatch.setattr(TraceGather, "add", lambda gather, event: added.append(event))
    monkeypatch.setattr(reader, "_MOST_EVENTS", 10)
    text = b'{"traceEvents": [' + b",".join([b"{}"] * 50_000) + b"]}"
    for name, data in (("plain.json", text), ("packed.json.gz", gzip.compress(text))):
        (tmp_path / name).write_bytes(data)
        added.clear()
        with pytest.raises(GpudocError, match="contains no operator"):
            read_trace(tmp_path / name)
        assert len(added) == min(50_000, 10 + len(data) // 3)


@pytest.mark.parametrize("blanks", [0, 1, 63, 64, 65, 1_000])
def test_what_stands_between_two_events_is_passed_over_however_much_it_is(blanks):
    between = (" \n,\t\r" * 200)[:blanks]
    assert reader._skip(f"x{between}y{between}", 1) == 1 + blanks
    assert reader._skip(f"x{between}", 1) == 1 + blanks


def test_of_a_packed_trace_that_unpacks_to_far_more_than_any_the_rest_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_CHUNK", 1 << 12)
    monkeypatch.setattr(reader, "_MOST_RATIO", 40)
    whole = planted(Step()).write(tmp_path / "t.json").read_bytes()
    blanks, (head, events) = b" " * (4 << 20), whole.split(b'"traceEvents": [', 1)
    assert len(gzip.compress(whole)) * 40 > len(whole)
    for name, between in (("usual.json.gz", b""), ("blown.json.gz", blanks)):
        (tmp_path / name).write_bytes(gzip.compress(head + b'"traceEvents": [' + between + events))
    assert not read_trace(tmp_path / "usual.json.gz").is_cut
    with pytest.raises(GpudocError, match="contains no operator"):
        read_trace(tmp_path / "blown.json.gz")


@pytest.mark.parametrize("strings", ["first", "last", "separate"])
def test_lines_of_nsys_give_what_its_database_gives(tmp_path, strings):
    made = planted(Step(talk=300, copy=200, reads=True), steps=4)
    base = read_trace(write_nsys(tmp_path / "trace.sqlite", made))
    path = write_nsys_lines(tmp_path / "trace.json", made, strings)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert is_trace(path)
    assert is_trace(packed)
    for trace in (read_trace(path), read_trace(packed)):
        assert (trace.devices, trace.host, trace.steps) == (base.devices, base.host, base.steps)
        assert not trace.is_cut
    assert {work.kind for work in base.devices[0]} == {"compute", "communication", "copy"}


def test_lines_of_nsys_are_read_in_pieces_of_any_size(tmp_path, monkeypatch):
    path = write_nsys_lines(tmp_path / "trace.json", planted(Step(), steps=20))
    expected = read_trace(path)
    monkeypatch.setattr(reader, "_CHUNK", 700)
    assert read_trace(path) == expected


@pytest.mark.parametrize("strings", ["first", "last"])
def test_lines_of_nsys_that_end_in_the_middle_are_read_up_to_there(tmp_path, strings):
    path = write_nsys_lines(tmp_path / "trace.json", planted(Step(), steps=30), strings)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    trace = read_trace(path)
    assert trace.is_cut
    assert 0 < len(trace.devices[0]) < 300


def test_only_the_first_lines_of_nsys_count_that_a_file_of_its_length_can_hold(tmp_path, monkeypatch):
    path = write_nsys_lines(tmp_path / "trace.json", planted(Step(), steps=30))
    monkeypatch.setattr(reader, "_MOST_EVENTS", 40)
    monkeypatch.setattr(reader, "_FEWEST_BYTES", 1 << 40)
    assert len(read_trace(path).devices[0]) < 40


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        '{"Type":79,"CudaEvent":{"startNs":"soon","endNs":"1","deviceId":0,"kernel":{"shortName":"1"}}}',
        '{"Type":79,"CudaEvent":{"startNs":"1","endNs":"2","deviceId":0,"kernel":"1"}}',
        '{"Type":79,"CudaEvent":{"startNs":"1","endNs":"2","deviceId":true,"kernel":{"shortName":"1"}}}',
        '{"Type":79,"CudaEvent":{"startNs":"1","endNs":"2","deviceId":"nine","memset":{}}}',
        '{"Type":80,"CudaEvent":{"startNs":' + "9" * 5000 + ',"endNs":"2","deviceId":0,"memset":{}}}',
        '{"Type":106,"CudaEvent":{"startNs":"1","endNs":"2","deviceId":0,"sync":{"syncType":"X"}}}',
        '{"Type":75,"NvtxEvent":{"Type":75,"Timestamp":"1","Text":"mark","GlobalTid":"1"}}',
        '{"Type":48,"TraceProcessEvent":{"startNs":"1","endNs":null,"globalTid":"1","name":"99999"}}',
        '{"type":"String","id":"x","value":"y"}',
    ],
)
def test_lines_of_nsys_that_hold_no_work_are_left_out(tmp_path, line):
    path = write_nsys_lines(tmp_path / "trace.json", planted(Step(), steps=3))
    expected = read_trace(path).devices
    first, *more = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *more]) + "\n")
    assert read_trace(path).devices == expected


def test_an_operator_that_emit_nvtx_marks_is_one(tmp_path):
    made = planted(Step(), steps=3)
    for name in ("aten::linear, op_id = 17", "AddmmBackward0, seq = 596, op_id = 1719", "mine, seq = no"):
        made.span("user_annotation", name, 1_000_000.0, 5.0)
    trace = read_trace(write_nsys_lines(tmp_path / "trace.json", made))
    assert {span.name for span in trace.host["op"]} == {"aten::linear", "AddmmBackward0"}
