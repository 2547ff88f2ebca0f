import os
import stat
import threading
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.writing import check_places, write_whole
from tests.full_disk import full_at


def test_the_text_is_there_and_nothing_beside_it(tmp_path):
    place = tmp_path / "page.html"
    place.write_text("old")
    assert write_whole(place, "größer\n", hint="") == place
    assert place.read_text("utf-8") == "größer\n"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_file_that_grows_too_large_leaves_the_old_one(tmp_path):
    place = tmp_path / "record.json"
    place.write_text("old")
    with full_at(4096), pytest.raises(GpudocError, match="cannot be written") as caught:
        write_whole(place, "x" * 100_000, hint="--out elsewhere.json")
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


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    place = tmp_path / "private.json"
    place.write_text("old")
    place.chmod(0o600)
    write_whole(place, "new", hint="")
    assert (place.read_text(), stat.S_IMODE(place.stat().st_mode)) == ("new", 0o600)


def test_what_lies_in_the_way_is_neither_followed_nor_overwritten(tmp_path, monkeypatch):
    """As on a share where another process has the same number, or where somebody guesses the name."""
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    for name in ("page.html.guessed", f"page.html.{os.getpid()}"):
        (tmp_path / f".{name}.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(GpudocError, match=r"page\.html: cannot be written: File exists"):
        write_whole(tmp_path / "page.html", "text", hint="")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "page.html").exists()


def test_the_name_in_the_folder_is_brought_to_the_disk_after_the_file(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    write_whole(tmp_path / "record.json", "text", hint="")
    assert [name.rpartition("/")[2].startswith(".record.json.") for name in synced] == [True, False]
    assert synced[1] == str(tmp_path)


def test_two_writers_of_one_file_leave_one_of_their_texts(tmp_path):
    place = tmp_path / "summary.json"
    texts = [str(number) * 200_000 for number in range(4)]

    def write(text):
        for _ in range(10):
            write_whole(place, text, hint="")

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place.read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_places_are_checked_before_anything_is_measured(tmp_path, monkeypatch):
    check_places(None, tmp_path / "new.json")
    with pytest.raises(GpudocError, match="no such folder"):
        check_places(tmp_path / "no" / "r.json")
    with pytest.raises(GpudocError, match="a folder, not a file"):
        check_places(None, tmp_path)
    # root may write anywhere, so the answer of the system is given here
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(GpudocError, match="cannot write there"):
        check_places(tmp_path / "kept.json")
