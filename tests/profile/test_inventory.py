import ast
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import gpudoc
from gpudoc.profile import store
from gpudoc.profile.inventory import find_kept, remove
from gpudoc.tune.search.journal import Header, open_journal

from .test_store import tuned


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


HOLD = """
import sys
from gpudoc.temporary import TemporaryFolder
held = TemporaryFolder("job")
print(held.path, flush=True)
sys.stdin.read()
"""
SEARCH = """
import sys
from pathlib import Path
from gpudoc.tune.search.journal import Header, open_journal
journal = open_journal(Path(".gpudoc/journals/here.jsonl"), Header(key={}, limit_bytes=1))
print("begun", flush=True)
sys.stdin.read()
"""


def started(code):
    """A process that runs `code`, once it has said something."""
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.said = process.stdout.readline().strip()
    return process


def held(place):
    """A temporary folder, and the process that uses it."""
    process = started(HOLD)
    return Path(process.said), process


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
    folder, process = held(place)
    process.kill()
    process.wait()
    (folder / "stdout").write_text("a line")
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
    _, process = held(place)
    (found,) = find_kept()
    assert found.stays == f"in use by process {process.pid}"
    assert remove(found).endswith(f": in use by process {process.pid}"), "it may have come into use since it was listed"
    process.kill()
    process.wait()
    (found,) = find_kept()
    assert found.stays == ""


def test_a_journal_stays_while_a_search_of_it_runs_and_others_may_go(place):
    (place / "work" / ".gpudoc").mkdir()
    open_journal(Path(".gpudoc/journals/other.jsonl"), Header(key={}, limit_bytes=1)).close()
    with started(SEARCH) as process:
        assert [(one.path.name, one.stays) for one in find_kept()] == [
            ("here.jsonl", "in use by a search"), ("other.jsonl", "")
        ]  # fmt: skip
        assert [remove(one) for one in find_kept()] == [".gpudoc/journals/here.jsonl: in use by a search", ""]
        process.communicate()
    assert [remove(one) for one in find_kept()] == [""]


def test_every_temporary_folder_is_made_by_its_one_owner():
    others = []
    for path in Path(gpudoc.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            # a folder within one of gpudoc's own goes with it; a file without a name goes with its process
            makes = name in ("mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile")
            if makes and "dir" not in {each.arg for each in node.keywords}:
                others.append("/".join(path.parts[-2:]))
    assert sorted(others) == ["cli/app.py", "gpudoc/temporary.py"]
