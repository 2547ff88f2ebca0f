from __future__ import annotations

import errno
import tracemalloc

import pytest

from gpudoc.facts.files import exists, link_name, list_names, read_bytes, read_int, read_text, reason_of
from gpudoc.facts.model import Absent


def test_what_is_there_is_read(tmp_path):
    (tmp_path / "vendor").write_text(" 0x10de\n")
    (tmp_path / "link").symlink_to("../../drivers/nvidia")
    assert read_text(tmp_path, "vendor") == "0x10de"
    assert read_int(tmp_path, "vendor") == 0x10DE
    assert read_bytes(tmp_path, "vendor", limit=3) == b" 0x"
    assert link_name(tmp_path, "link") == "nvidia"
    assert list_names(tmp_path, ".") == ("link", "vendor")
    assert exists(tmp_path, "link")


def test_a_small_file_takes_little_memory_to_read(tmp_path):
    (tmp_path / "status").write_text("Cpus_allowed_list: 0-1\n")
    (tmp_path / "long").write_bytes(bytes(range(256)) * 1000)
    tracemalloc.start()
    read_text(tmp_path, "status")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert read_bytes(tmp_path, "long") == bytes(range(256)) * 1000
    assert read_bytes(tmp_path, "long", limit=100_000) == (bytes(range(256)) * 1000)[:100_000]


def test_what_is_missing_is_absent_with_its_place(tmp_path):
    for answer in (
        read_text(tmp_path, "a"),
        read_int(tmp_path, "a"),
        list_names(tmp_path, "a"),
        link_name(tmp_path, "a"),
    ):
        assert answer == Absent("no such file: /a")
    assert not exists(tmp_path, "a")


def test_what_is_no_number_is_absent(tmp_path):
    (tmp_path / "max").write_text("max\n")
    assert read_int(tmp_path, "max") == Absent("not a number in /max")


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.EACCES, "no permission: /dev/kmsg"), (errno.EIO, "input/output error: /dev/kmsg")],
)
def test_the_reason_says_what_the_system_said(code, reason):
    import os

    assert reason_of(OSError(code, os.strerror(code)), "dev/kmsg") == reason


def test_text_in_no_known_encoding_is_still_read(tmp_path):
    (tmp_path / "odd").write_bytes(b"\xff\xfe model\n")
    assert "model" in read_text(tmp_path, "odd")
