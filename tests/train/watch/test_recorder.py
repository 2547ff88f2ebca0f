"""NCCL's flight recorder: the variables that switch it on, and what ranks answer that play PyTorch's part."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest

from gpudoc.train.watch import recorder
from gpudoc.train.watch.recorder import ask, switched_on


def test_what_the_user_set_stays_and_both_names_agree(tmp_path):
    mine = switched_on(tmp_path, {})
    assert mine["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert mine["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == mine["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/nccl_trace_rank_"
    own = switched_on(tmp_path, {"TORCH_FR_BUFFER_SIZE": "50", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/dump_"})
    assert own["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "50"
    assert own["TORCH_FR_DUMP_TEMP_FILE"] == "/mine/dump_"


def dump(last, name="all_reduce"):
    calls = [
        {
            "process_group": ("0", "default_pg"),
            "collective_seq_id": number,
            "is_p2p": False,
            "profiling_name": f"nccl:{name}",
            "state": "completed" if number < 9 else "started",
            "frames": [{"name": "step", "filename": "/code/train.py", "line": 42}],
        }
        for number in range(1, last + 1)
    ]
    status = {"0": {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": 8}}
    return pickle.dumps({"entries": calls, "pg_status": status, "pg_config": {"0": {"ranks": "[0, 1]"}}}, protocol=2)


@pytest.fixture
def nccl(tmp_path):
    """PyTorch's threads of two ranks, each of which reads its pipe and then writes its dump, in two pieces."""
    environment = switched_on(tmp_path, {})
    threads = []

    def answer(rank, content):
        pipe = f"{environment['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
        os.mkfifo(pipe)
        # as PyTorch does: a reader is there from the start
        handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

        def run():
            os.set_blocking(handle, True)
            while not os.read(handle, 10):
                pass
            os.close(handle)
            with Path(f"{environment['TORCH_FR_DUMP_TEMP_FILE']}{rank}").open("wb") as file:
                file.write(content[:20])
                file.flush()
                file.write(content[20:])

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

    yield environment, answer
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_the_rank_that_never_came_to_the_collective_is_named(nccl):
    environment, answer = nccl
    answer(0, dump(9))
    answer(1, dump(8))
    (sentence,) = ask(environment, [0, 1])
    assert "NCCL's flight recorder: Rank 1 did not come to the collective in which the others wait" in sentence
    assert "train.py:42 in step" in sentence


def test_a_call_in_which_all_ranks_stand_is_told(nccl):
    environment, answer = nccl
    answer(0, dump(9))
    answer(1, dump(9))
    (sentence,) = ask(environment, [0, 1])
    assert sentence.startswith("NCCL's flight recorder: rank 0, 1 in all_reduce")
    assert sentence.endswith("number 9, started from train.py:42 in step")


def test_without_nccl_nothing_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_ANSWER_S", float("inf"))
    assert ask(switched_on(tmp_path, {}), [0, 1]) == ()
    assert ask({}, [0, 1]) == ()


def test_a_recorder_that_does_not_answer_is_given_up(nccl, monkeypatch):
    environment, answer = nccl
    monkeypatch.setattr(recorder, "_ANSWER_S", 0.5)
    answer(0, b"no pickle at all")
    assert ask(environment, [0]) == ()


def test_nothing_is_written_into_what_is_no_pipe_of_this_user(tmp_path):
    environment = switched_on(tmp_path, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/mine_"})
    (tmp_path / "mine_0.pipe").write_text("a file of the user's")
    (tmp_path / "victim").write_text("another one")
    (tmp_path / "mine_1.pipe").symlink_to(tmp_path / "victim")
    assert ask(environment, [0, 1]) == ()
    assert (tmp_path / "mine_0.pipe").read_text() == "a file of the user's"
    assert (tmp_path / "victim").read_text() == "another one"


def test_nothing_is_written_behind_a_link_even_to_a_pipe_of_this_user(tmp_path):
    environment = switched_on(tmp_path, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/mine_"})
    os.mkfifo(tmp_path / "elsewhere")
    (tmp_path / "mine_0.pipe").symlink_to(tmp_path / "elsewhere")
    reader = os.open(tmp_path / "elsewhere", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert ask(environment, [0]) == ()
        assert os.read(reader, 9) == b""
    finally:
        os.close(reader)
