"""Nodes whose job made no key agree on one in the folder that they share, which no other user can read or foresee."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.process.seal import KEY
from gpudoc.train.start.run_key import run_key

STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}
FIRST, SECOND = {**STEP, "SLURM_PROCID": "0"}, {**STEP, "SLURM_PROCID": "1"}
NAME = ".gpudoc-key-7-0-0"


def answer(pipe, folder: Path) -> None:
    with run_key(SECOND, folder) as key:
        pipe.send(key)


def test_the_first_process_makes_a_key_that_the_others_wait_for(tmp_path):
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    other = context.Process(target=answer, args=(there, tmp_path))
    other.start()
    with run_key(FIRST, tmp_path) as key:
        assert here.recv() == key
        assert len(key) == 64
        assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    other.join()
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_the_job_file_is_the_key_and_nothing_is_written(tmp_path):
    with run_key({**SECOND, KEY: "the key of this job"}, tmp_path) as key:
        assert key == "the key of this job"
    assert list(tmp_path.iterdir()) == []


def test_each_start_of_a_job_has_a_file_and_a_key_of_its_own(tmp_path):
    with run_key(FIRST, tmp_path) as one, run_key({**FIRST, "SLURM_RESTART_COUNT": "1"}, tmp_path) as two:
        assert one != two
        assert len(list(tmp_path.iterdir())) == 2


def test_without_a_folder_in_common_the_nodes_refuse_with_the_line_for_the_job_file(tmp_path):
    with pytest.raises(GpudocError, match="do all nodes share that folder") as refused:
        run_key(SECOND, tmp_path, wait_s=0.0).__enter__()
    assert f"export {KEY}=" in refused.value.hint


@pytest.mark.parametrize("harm", ["readable by others", "a link", "a folder", "of another user"])
def test_a_file_that_another_user_could_have_written_or_read_is_no_key(tmp_path, monkeypatch, harm):
    path = tmp_path / NAME
    if harm == "a folder":
        path.mkdir(mode=0o700)
    elif harm == "a link":
        (tmp_path / "elsewhere").write_text("0" * 64 + "\n")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("0" * 64 + "\n")
        path.chmod(0o644 if harm == "readable by others" else 0o600)
    if harm == "of another user":
        monkeypatch.setattr("os.getuid", lambda: path.stat().st_uid + 1)
    for who in (SECOND, FIRST):
        with pytest.raises(GpudocError, match=r"must be a file that only this user owns and can read|cannot be"):
            run_key(who, tmp_path, wait_s=0.0).__enter__()
    assert path.exists()
