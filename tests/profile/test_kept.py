import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import gpudoc
from gpudoc.profile import store
from gpudoc.profile.kept import TEMPORARY, find_kept, remove
from gpudoc.tune.search.journal import Header, open_journal
from gpudoc.writing import own_prefix

from .test_store import tuned


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def _ended():
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return str(process.pid)


def names():
    return sorted((one.path.name, one.what) for one in find_kept())


def test_profiles_journals_and_reports_are_found_and_what_others_wrote_is_not(place):
    folder = store.user_folder()
    store.save(tuned(), folder / "mine.yaml")
    (folder / "notes.yaml").write_text("schema: something.else.v1\n")
    open_journal(folder.parent / "journals" / "a.jsonl", Header(key={}, limit_bytes=1))
    (folder.parent / "journals" / "metrics.jsonl").write_text('{"step": 1}\n')
    (place / "tmp" / "gpudoc-fault-abcd1234.txt").write_text("Traceback")
    for stranger in ("gpudoc-checkout", "gpudoc-fault-notes.txt", "gpudoc-tune-mine"):
        (place / "tmp" / stranger).mkdir()
    store.save(tuned(), place / "work" / store.LOCAL_FOLDER / "ours.yaml")
    assert names() == [
        ("a.jsonl", "journal of a search"), ("gpudoc-fault-abcd1234.txt", "report of a fault"), ("mine.yaml", "profile")
    ]  # fmt: skip


def test_the_journals_beside_this_folders_profiles_are_found_too(place):
    open_journal(Path(".gpudoc/journals/here.jsonl"), Header(key={}, limit_bytes=1))
    assert names() == [("here.jsonl", "journal of a search")]


def test_a_link_is_not_followed(place):
    store.save(tuned(), place / "elsewhere.yaml")
    store.user_folder().mkdir(parents=True)
    (store.user_folder() / "link.yaml").symlink_to(place / "elsewhere.yaml")
    assert names() == []


def test_what_is_removed_is_gone_with_the_folders_that_are_empty_then(place):
    path = store.save(tuned(), store.user_folder() / "mine.yaml")
    left = Path(tempfile.mkdtemp(prefix=own_prefix("job").replace(str(os.getpid()), _ended())))
    (left / "stdout").write_text("a line")
    assert [remove(one) for one in find_kept()] == ["", ""]
    assert not path.parent.parent.exists()
    assert list((place / "tmp").iterdir()) == []
    assert (place / "tmp").is_dir()


def test_what_cannot_be_removed_is_told(place, monkeypatch):
    store.save(tuned(), store.user_folder() / "mine.yaml")

    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    (told,) = (remove(one) for one in find_kept())
    assert told.endswith("mine.yaml: Permission denied")


def test_a_folder_is_in_use_until_its_process_ends(place):
    holder = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (place / "tmp" / f"gpudoc-watch-{holder.pid}-abcd1234").mkdir()
    try:
        (found,) = find_kept()
        assert found.used_by == f"process {holder.pid}"
    finally:
        holder.communicate(b"\n")
    (found,) = find_kept()
    assert found.used_by == ""


def test_the_journals_stay_while_a_search_runs(place):
    open_journal(Path(".gpudoc/journals/here.jsonl"), Header(key={}, limit_bytes=1))
    (place / "tmp" / f"gpudoc-tune-{os.getpid()}-abcd1234").mkdir()
    assert {one.used_by for one in find_kept()} == {f"process {os.getpid()}"}


def test_every_temporary_name_that_the_program_gives_is_known():
    given = set()
    for path in Path(gpudoc.__file__).parent.rglob("*.py"):
        if path.parts[-2:] == ("cli", "app.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = {each.arg: each.value for each in node.keywords} if isinstance(node, ast.Call) else {}
            # a folder within one of gpudoc's own goes with it
            if "prefix" in named and "dir" not in named:
                assert isinstance(named["prefix"], ast.Call), f"{path.name}: own_prefix says whose folder it is"
                given.add(named["prefix"].args[0].value)
    assert given == set(TEMPORARY)
