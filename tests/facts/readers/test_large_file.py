from __future__ import annotations

import gzip
import os

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.readers import large_file
from gpudoc.facts.readers.genre import is_trace
from gpudoc.facts.readers.job_files import JobFile, is_log
from gpudoc.facts.readers.kineto import read_trace
from gpudoc.facts.readers.large_file import LargeFile, blocks, open_regular


def opened(path, text):
    path.write_bytes(text)
    return LargeFile(os.open(path, os.O_RDONLY), len(text))


@pytest.mark.parametrize("window", [4, 5, 7, 100])
def test_it_answers_as_the_same_bytes_do(tmp_path, monkeypatch, window):
    monkeypatch.setattr(large_file, "_WINDOW_BYTES", window)
    text = b"abcXYZdefXYZghiXY"
    file = opened(tmp_path / "x.log", text)
    assert len(file) == len(text)
    assert (file[:], file[3:6], file[-2:], file[5:2]) == (text, b"XYZ", b"XY", b"")
    for begin in range(len(text)):
        for end in range(begin, len(text) + 1):
            assert file.find(b"XYZ", begin, end) == text.find(b"XYZ", begin, end)
            assert file.rfind(b"XYZ", begin, end) == text.rfind(b"XYZ", begin, end)
    assert (file.find(b"no"), file.rfind(b"no"), file.find(b"def")) == (-1, -1, 6)


def test_what_was_cut_off_reads_as_nothing(tmp_path):
    file = opened(tmp_path / "x.log", b"0123456789")
    os.truncate(tmp_path / "x.log", 4)
    assert (len(file), file[:], file[6:], file.find(b"9")) == (10, b"0123", b"", -1)


def test_the_file_is_closed_with_it(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    file = LargeFile(handle, 0)
    del file
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(handle)


@pytest.mark.parametrize(
    "pack", [bytes, lambda text: gzip.compress(text[:7]) + gzip.compress(b"") + gzip.compress(text[7:])]
)
@pytest.mark.parametrize("size", [3, 8, 1 << 20])
def test_every_part_of_a_file_comes_in_blocks_of_the_size_that_was_asked_for(tmp_path, pack, size):
    text = bytes(range(100))
    packed = pack(text)
    for data in (packed, opened(tmp_path / "x.log", packed)):
        read = list(blocks(data, size))
        assert b"".join(read) == text
        assert max(map(len, read)) <= size
        assert all(read)


def test_of_a_damaged_file_or_one_of_many_empty_parts_the_beginning_comes(monkeypatch):
    whole = gzip.compress(b"the beginning")
    assert b"".join(blocks(whole + whole[:10] + b"x" * 30, 1 << 10)) == b"the beginning"
    monkeypatch.setattr(large_file, "MOST_PARTS", 5)
    assert list(blocks(whole + gzip.compress(b"") * 9 + whole, 1 << 10)) == [b"the beginning"]


@pytest.mark.parametrize(
    "look",
    [
        open_regular,
        lambda path: JobFile(path=path, name="train.log").open(),
        read_trace,
        lambda path: is_log(path) or pytest.fail("taken for a log"),
        lambda path: is_trace(path) or pytest.fail("taken for a trace"),
    ],
    ids=["open_regular", "a rank's log", "a trace", "is_log", "is_trace"],
)
def test_a_pipe_that_takes_the_place_of_a_file_before_it_is_opened_is_not_waited_for(tmp_path, monkeypatch, look):
    path, real = tmp_path / "train.log", os.open
    path.write_text('{"traceEvents": []}')

    def replace_and_open(name, flags, *rest, **more):
        if path.is_file():
            path.unlink()
            os.mkfifo(path)
        # what opens it without this waits for a writer
        assert flags & os.O_NONBLOCK
        return real(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", replace_and_open)
    with pytest.raises((OSError, GpudocError, pytest.fail.Exception)) as refused:
        look(path)
    if not isinstance(refused.value, pytest.fail.Exception):
        assert "it was replaced while gpudoc opened it" in str(refused.value)
