"""Pickles that PyTorch dumps: read as far as they go, and nothing in a pickle ever runs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.readers.dumps import MemorySnapshot, RankTrace, read_dump
from gpudoc.facts.readers.intake import is_dump

FRAMES = [
    {"filename": "/env/torch/distributed/distributed_c10d.py", "line": 2800, "name": "all_reduce"},
    {"filename": "/home/me/train.py", "line": 42, "name": "step"},
]


def call(number, name="all_reduce", state="completed", sizes=((4, 8),)):
    """An entry as torch 2.6 and later write it."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "frames": FRAMES,
        "input_sizes": sizes,
        "input_dtypes": ["Float"],
        "state": state,
        "is_p2p": False,
    }


def recorded(calls, enqueued, ranks="[0, 1]"):
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": enqueued, "last_started_collective": enqueued - 1}},
        "entries": calls,
    }


def snapshot(blocks, oom=None):
    segment = {
        "device": 0,
        "total_size": sum(size for size, _ in blocks),
        "allocated_size": sum(size for size, state in blocks if state == "active_allocated"),
        "blocks": [{"size": size, "state": state, "frames": FRAMES} for size, state in blocks],
    }
    trace = [{"action": "alloc", "addr": 1, "size": 5}, *([oom] if oom else [])]
    return {"segments": [segment], "device_traces": [trace]}


def read(content, name="nccl_trace_rank_3"):
    data = pickle.dumps(content)
    assert is_dump(data)
    return read_dump(data, name)


def test_a_flight_recorders_dump_is_calls_by_number_with_the_users_line():
    trace = read(recorded([call(7), {**call(1), "is_p2p": True}, call(8, state="started")], enqueued=8))
    assert isinstance(trace, RankTrace)
    assert (trace.rank, trace.last, trace.members) == (3, {"0": 8}, {"0": (0, 1)})
    assert [(one.group, one.number, one.name, one.state) for one in trace.calls] == [
        ("0", 7, "all_reduce", "completed"),
        ("0", 8, "all_reduce", "started"),
    ]
    assert trace.calls[0].place == "train.py:42 in step"
    assert "(4, 8)" in trace.calls[0].sizes


def test_an_older_dump_without_a_status_is_read_as_far_as_it_goes():
    entry = {"seq_id": 5, "pg_id": 0, "pg_name": "0", "profiling_name": "nccl:broadcast", "state": "scheduled"}
    trace = read({"version": "1.5", "entries": [entry]}, "dump")
    assert isinstance(trace, RankTrace)
    assert (trace.rank, trace.last, trace.members) == (None, {}, {})
    assert [(one.number, one.name, one.place) for one in trace.calls] == [(5, "broadcast", "")]


def test_a_memory_snapshot_is_sums_the_largest_hole_and_who_holds():
    oom = {"action": "oom", "addr": 900, "size": 64}
    blocks = [(100, "active_allocated"), (30, "inactive"), (50, "active_allocated"), (20, "inactive")]
    (gpu,) = read(snapshot(blocks, oom), "memory.pickle")
    assert isinstance(gpu, MemorySnapshot)
    assert (gpu.reserved_bytes, gpu.allocated_bytes, gpu.largest_free_bytes) == (200, 150, 30)
    assert (gpu.wanted_bytes, gpu.device_free_bytes) == (64, 900)
    assert gpu.holders == (("train.py:42 in step", 150),)
    (quiet,) = read(snapshot(blocks), "memory.pickle")
    assert quiet.wanted_bytes is None


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, line):
        self.line = line

    def __reduce__(self):
        return os.system, (self.line,)


def test_a_pickle_that_would_run_code_is_refused_and_runs_none(tmp_path):
    for content in (Command(f"touch {tmp_path}/ran"), {"entries": [Command(f"touch {tmp_path}/ran")]}):
        with pytest.raises(GpudocError, match=r"x\.pickle is a pickle that contains posix\.system"):
            read(content, "x.pickle")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x80", "damaged"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f", "damaged"),
        (pickle.dumps({"entries": [1]})[:-3], "damaged"),
        (pickle.dumps([1, 2]), "neither"),
        (pickle.dumps({"weights": 1}), "neither"),
    ],
)
def test_a_damaged_or_another_pickle_is_said_in_one_sentence(data, says):
    with pytest.raises(GpudocError, match=says):
        read_dump(data, "x.pickle")


@pytest.mark.parametrize(
    "content", [{"entries": 5}, {"entries": [5, {}, {"collective_seq_id": "x"}]}, {"segments": [5]}]
)
def test_odd_values_in_a_dump_are_passed_over(content):
    assert read(content) is not None


def test_a_few_bytes_that_ask_for_gigabytes_are_a_damaged_pickle():
    # a place in the memo that is far beyond what a pickle of nine bytes can need
    code = (
        "import resource, sys\n"
        "from gpudoc.errors import GpudocError\n"
        "from gpudoc.facts.readers.dumps import read_dump\n"
        "try:\n"
        "    read_dump(b'\\x80\\x02\\x4er' + (2**26).to_bytes(4, 'little') + b'.', 'bomb.pickle')\n"
        "except GpudocError as said:\n"
        "    print(said)\n"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(peak, resource.getrlimit(resource.RLIMIT_DATA)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, figures = done.stdout.splitlines()
    assert said == "bomb.pickle is a damaged pickle: MemoryError()"
    assert int(figures.split()[0]) < 400_000
    assert int(figures.split()[1]) == -1


def test_lists_that_stand_in_each_other_are_said_in_a_few_words():
    shared: list[object] = [1] * 10
    for _ in range(30):
        shared = [shared] * 10
    call = {"collective_seq_id": 1, "process_group": shared, "profiling_name": shared, "input_sizes": shared}
    trace = read_dump(pickle.dumps({"entries": [call], "pg_config": {"0": {"ranks": shared}}}), "rank0")
    assert len(trace.calls[0].name) < 10_000
    assert trace.members == {}


def test_a_number_of_thousands_of_digits_is_no_fault_of_ours():
    frame = {"filename": "train.py", "line": 10**5000, "name": "step"}
    trace = read_dump(pickle.dumps({"entries": [{"seq_id": 1, "frames": [frame]}]}), "rank0")
    assert trace.calls[0].place == "train.py:a number without end in step"
