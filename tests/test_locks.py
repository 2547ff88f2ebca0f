import errno
import fcntl
import os
import subprocess
import sys

import pytest

from gpudoc.locks import InUseError, take_lock

HOLD = """
import pathlib, sys
from gpudoc.locks import take_lock
lock = take_lock(pathlib.Path(sys.argv[1]), owner=sys.argv[2])
lock.note("process of the test")
print("held", flush=True)
sys.stdin.read()
"""


def holder(place, owner):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place), owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("owner", ["process", "file"])
def test_a_lock_is_held_until_its_owner_is_killed_and_says_whose_it_is(tmp_path, owner):
    place = tmp_path / "lock"
    with holder(place, owner) as process:
        with pytest.raises(InUseError, match="process of the test"):
            take_lock(place, owner=owner)
        process.kill()
        process.wait()
        take_lock(place, owner=owner).close()


def test_a_lock_of_a_file_lasts_as_long_as_a_child_that_inherited_it(tmp_path):
    read, write = os.pipe()
    lock = take_lock(tmp_path / "lock", owner="file")
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    lock.close()
    try:
        with pytest.raises(InUseError):
            take_lock(tmp_path / "lock", owner="file")
    finally:
        os.close(write)
        os.waitpid(child, 0)
    os.close(read)
    take_lock(tmp_path / "lock", owner="file").close()


OPEN_THEN_LOCK = """
import fcntl, os, pathlib, sys
from gpudoc import locks
real = locks._lock
def wait_then_lock(handle, owner):
    if not hasattr(wait_then_lock, "waited"):
        wait_then_lock.waited = True
        print("open", flush=True)
        sys.stdin.readline()
    return real(handle, owner)
locks._lock = wait_then_lock
lock = locks.take_lock(pathlib.Path(sys.argv[1]), owner="process")
print(os.path.samestat(os.fstat(lock.handle), os.stat(sys.argv[1])), flush=True)
sys.stdin.readline()
"""


def test_who_opened_a_lock_file_before_it_was_removed_does_not_hold_a_lock_beside_the_next(tmp_path):
    place = tmp_path / "lock"
    first = take_lock(place, owner="process")
    command = [sys.executable, "-c", OPEN_THEN_LOCK, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout.readline() == "open\n"
        first.remove()
        second.stdin.write("\n")
        second.stdin.flush()
        assert second.stdout.readline() == "True\n", "it holds the lock of a file that is gone"
        with pytest.raises(InUseError):
            take_lock(place, owner="process")
        second.communicate("\n")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_place_without_locks_is_no_place_in_use(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    for owner in ("process", "file"):
        lock = take_lock(tmp_path / "lock", owner=owner)
        assert lock.why_not == os.strerror(number)
        lock.close()


def test_where_flock_is_missing_a_record_lock_takes_its_place(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with holder(tmp_path / "lock", "process") as process:
        with pytest.raises(InUseError):
            take_lock(tmp_path / "lock", owner="file")
        process.communicate()


def test_a_link_or_a_pipe_in_the_place_of_a_lock_is_refused_at_once(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=r"symbolic links|plain file"):
            take_lock(tmp_path / name, owner="process")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_lock_that_nobody_has_any_more_is_given_back(tmp_path):
    """As when an iterator is left early in a notebook, whose process goes on."""

    def begin():
        yield take_lock(tmp_path / "lock", owner="file")

    run = begin()
    next(run)
    del run
    take_lock(tmp_path / "lock", owner="file").close()
