import ctypes
import os

import pytest

from gpudoc.facts.live import spool
from gpudoc.facts.live.spool import TAIL_BYTES, Spool

MIB = 1 << 20


@pytest.fixture
def writer(tmp_path):
    """The descriptor of a job's output, and the place."""
    handle = os.open(tmp_path / "stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    yield handle, tmp_path / "stdout"
    os.close(handle)


def taken(place):
    """Bytes that the file takes on the disk."""
    return place.stat().st_blocks * 512


def test_what_was_passed_on_takes_no_room_any_more_and_nothing_is_lost(writer):
    handle, place = writer
    followed, seen, most = Spool(place), [], 0
    for number in range(48):
        os.write(handle, bytes([number]) * MIB)
        followed.follow(seen.append)
        most = max(most, taken(place))
    if followed.cannot_free:
        pytest.skip(f"{place.parent}: {followed.cannot_free}")
    assert b"".join(seen) == b"".join(bytes([number]) * MIB for number in range(48))
    assert most < 4 * MIB
    assert followed.num_bytes_kept < TAIL_BYTES + 2 * MIB
    assert followed.tail() == chr(47) * TAIL_BYTES


def test_a_job_whose_reader_is_slow_is_neither_blocked_nor_cut(writer):
    handle, place = writer
    followed, seen = Spool(place), []
    os.write(handle, b"a" * MIB)
    followed.follow(seen.append)
    for _ in range(8):
        os.write(handle, b"b" * MIB)
    followed.follow(seen.append)
    assert b"".join(seen) == b"a" * MIB + b"b" * 8 * MIB


def test_where_no_hole_can_be_punched_all_stays_and_the_reason_is_known(writer, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(spool, "_punch", refuse)
    handle, place = writer
    followed, seen = Spool(place), []
    for _ in range(4):
        os.write(handle, b"x" * MIB)
        followed.follow(seen.append)
    assert followed.cannot_free == "Operation not supported"
    assert followed.num_bytes_kept == 4 * MIB
    assert place.read_bytes() == b"".join(seen)


def test_a_refusal_of_the_system_is_an_error_with_its_reason(tmp_path):
    if not hasattr(ctypes.CDLL(None), "fallocate"):
        pytest.skip("this C library has no fallocate")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="Illegal seek"):
        spool._punch(tmp_path / "pipe", 0, MIB)
    os.close(reader)
