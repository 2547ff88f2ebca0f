"""The parts of a cell that need no cell: what has to be made before, which mounts count, what is in a folder."""

from __future__ import annotations

import os
import subprocess
import sys

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


# as root or not: /sys with all that is mounted below it, in namespaces of its own
READ_ONLY = """
import os, sys
from gpudoc.script import walls
if sys.argv[2] == "one by one":
    walls._MOUNT_SETATTR = -1
walls._mount("/sys", sys.argv[1], "", walls._BIND | walls._REC)
walls._make_read_only(sys.argv[1])
points = [point for point in walls._mount_points() if point.startswith(sys.argv[1])]
print(len(points), [point for point in points if not os.statvfs(point).f_flag & os.ST_RDONLY])
"""


@pytest.mark.parametrize("how", ["at once", "one by one"])
def test_a_mount_is_read_only_with_all_below_it(tmp_path, how):
    command = ["unshare", "-rm", sys.executable, "-c", READ_ONLY, str(tmp_path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stderr.startswith("unshare:"):
        pytest.skip(done.stderr.strip())
    below = [point for point in walls._mount_points() if point == "/sys" or point.startswith("/sys/")]
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(below)} []\n", "")


def test_mounts_that_are_seen_are_found(tmp_path):
    found = walls._mount_points()
    assert {"/", "/proc"} <= found
    assert str(tmp_path) not in found
