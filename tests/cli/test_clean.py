import os
import pty
import subprocess
import sys

from gpudoc.profile import store
from tests.profile.test_store import tuned

from .test_app import gpudoc_command


def test_without_a_terminal_it_removes_nothing_unless_told_to(tmp_path):
    path = store.save(tuned(), store.user_folder() / "mine.yaml")
    done = gpudoc_command("clean", TMPDIR=str(tmp_path))
    assert (done.returncode, path.exists()) == (2, True)
    assert str(path) in done.stdout
    assert "gpudoc clean --yes" in done.stderr
    done = gpudoc_command("clean", "--yes", TMPDIR=str(tmp_path))
    assert (done.returncode, path.exists()) == (0, False)
    assert "Removed " in done.stdout


def answered(text, folder):
    """Exit code and screen of `gpudoc clean` on a terminal where `text` is typed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudoc", "clean"], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, text)
    seen = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:
            break
        seen += block
        if not block:
            break
    os.close(ours)
    return process.wait(), seen.decode()


def test_it_asks_first_and_no_is_the_answer_of_enter(tmp_path):
    path = store.save(tuned(), store.user_folder() / "mine.yaml")
    code, screen = answered(b"\n", tmp_path)
    assert (code, path.exists()) == (0, True)
    assert "Remove 1 (" in screen
    assert "Nothing was removed." in screen
    code, screen = answered(b"y\n", tmp_path)
    assert (code, path.exists()) == (0, False)
    assert "Removed 1 of 1." in screen


def test_nothing_kept_is_said_and_nothing_is_asked(tmp_path):
    done = gpudoc_command("clean", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "Nothing to remove.\n")
