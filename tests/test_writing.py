import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.writing import own_prefix, write_whole


def test_the_text_is_there_and_nothing_beside_it(tmp_path):
    place = tmp_path / "page.html"
    place.write_text("old")
    assert write_whole(place, "größer\n", hint="") == place
    assert place.read_text("utf-8") == "größer\n"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_file_that_grows_too_large_leaves_the_old_one(tmp_path):
    place = tmp_path / "record.json"
    place.write_text("old")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(GpudocError, match="cannot be written") as caught:
            write_whole(place, "x" * 100_000, hint="--out elsewhere.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.hint == "--out elsewhere.json"
    assert place.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def test_a_full_disk_is_named():
    with pytest.raises(GpudocError, match="/dev/full: cannot be written: No space left"):
        write_whole(Path("/dev/full"), "text", hint="")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(GpudocError, match=r"no/page\.html: cannot be written: No such file"):
        write_whole(tmp_path / "no" / "page.html", "text", hint="")


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "link", "text", hint="")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "text", hint="")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(("executable", "mode"), [(False, 0o640), (True, 0o755)])
def test_the_mask_decides_who_may_read(tmp_path, executable, mode):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", "text", hint="", executable=executable)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_temporary_folder_carries_the_number_of_its_process():
    assert own_prefix("watch") == f"gpudoc-watch-{os.getpid()}-"
