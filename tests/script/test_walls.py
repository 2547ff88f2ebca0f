"""The parts of a cell that need no cell: what has to be made before, which mounts count, what is in a folder."""

from __future__ import annotations

import os

import pytest

from gpudoc.script import walls


def test_the_way_to_where_a_script_writes_is_made_parents_first(tmp_path):
    (tmp_path / "own").mkdir()
    found = walls.foreign([str(tmp_path), "/var/tmp"])
    assert found.index("/var") < found.index("/var/tmp")
    assert str(tmp_path) in found
    assert str(tmp_path / "own") not in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folders_of_others_below_are_made_too(tmp_path):
    (tmp_path / "own" / "theirs").mkdir(parents=True)
    os.chown(tmp_path / "own" / "theirs", 65534, 65534)
    assert str(tmp_path / "own" / "theirs") in walls.foreign([str(tmp_path)])


def test_a_folder_that_may_not_be_written_to_is_not_writable_in_its_layer(tmp_path, monkeypatch):
    (tmp_path / "lower").mkdir(mode=0o775)
    (tmp_path / "upper").mkdir()
    walls._take_mode(str(tmp_path / "lower"), str(tmp_path / "upper"))
    assert (tmp_path / "upper").stat().st_mode & 0o200
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    walls._take_mode(str(tmp_path / "lower"), str(tmp_path / "upper"))
    assert not (tmp_path / "upper").stat().st_mode & 0o222


def test_mounts_that_are_seen_are_found(tmp_path):
    found = walls._mount_points()
    assert {"/", "/proc"} <= found
    assert str(tmp_path) not in found
