from __future__ import annotations

import os

import pytest

from gpudoc.facts.readers import large_file
from gpudoc.facts.readers.large_file import LargeFile


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
