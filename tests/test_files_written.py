"""docs/files.md lists every path that gpudoc writes, and nothing leaves the machine: held against real runs.

A hook in each Python process notes what is opened for writing, made or renamed, and where a socket connects to; files
that no hook sees (a library's, written in C) are found in the folders afterwards.
"""

import fnmatch
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LISTED = re.compile(r"`((?:\$\w+/|~/|/dev/shm/|runs/|\.gpudoc)[^`]*)`")
# what is asked for by name
ASKED = "asked.*"
# as which a file is written until it is whole
PART = re.compile(r"/\.([^/]+)\.[0-9a-f]{8}\.tmp$")
HOOK = """
import os, sys
out = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, bytes)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            os.write(out, f"file {os.path.abspath(os.fsdecode(path))}\\n".encode())
    elif event in ("os.mkdir", "os.rename", "os.link", "os.symlink"):
        path = arguments[0] if event == "os.mkdir" else arguments[1]
        if isinstance(path, (str, bytes)):
            os.write(out, f"file {os.path.abspath(os.fsdecode(path))}\\n".encode())
    elif event == "socket.connect":
        os.write(out, f"connect {arguments[1]!r}\\n".encode())
sys.addaudithook(note)
"""


@pytest.fixture
def place(tmp_path):
    for name in ("hook", "work", "home", "tmp", "data", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    (tmp_path / "work" / "train.log").write_text("step 1 loss 2.0\nRuntimeError: CUDA error: out of memory\n")
    return tmp_path


def run(place, *arguments):
    environment = {
        **os.environ,
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "XDG_DATA_HOME": str(place / "data"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "NOTES": str(place / "notes"),
        "PYTHONPATH": str(place / "hook"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "gpudoc", *arguments]
    done = subprocess.run(command, cwd=place / "work", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done


def listed(place):
    """The patterns of docs/files.md, with the folders of this test in the place of the variables."""
    folders = {"$XDG_DATA_HOME": "data", "$XDG_CACHE_HOME": "cache", "$TMPDIR": "tmp", "~": "home"}
    found = []
    for pattern in LISTED.findall((ROOT / "docs" / "files.md").read_text("utf-8")):
        head, _, rest = pattern.partition("/")
        base = place / folders[head] if head in folders else place / "work" / head
        found.append(pattern if pattern.startswith("/dev/shm") else str(base / rest).rstrip("/"))
    return [*found, str(place / "work" / ASKED)]


def strangers(place):
    """What was written by these runs and is not listed."""
    noted = [PART.sub(r"/\1", line.partition(" ")[2]) for line in notes(place) if line.startswith("file ")]
    folders = ("work", "home", "tmp", "data", "cache")
    left = [str(path) for name in folders for path in (place / name).rglob("*") if path.name != "train.log"]
    patterns = listed(place)
    # a folder on the way to what is listed, and what lies in a listed one
    ways = {str(parent) for pattern in patterns for parent in pathlib.Path(pattern).parents}
    return sorted(
        path
        for path in {*noted, *left}
        if path not in ways
        and not path.startswith(("/dev/", "/proc/", "/sys/"))
        and not any(fnmatch.fnmatch(path, one) or fnmatch.fnmatch(path, f"{one}/*") for one in patterns)
    )


def notes(place):
    return (place / "notes").read_text("utf-8").splitlines()


def connections(place):
    return sorted(
        {
            line
            for line in notes(place)
            if line.startswith("connect ") and not re.search(r"'(?:127\.0\.0\.1|::1|/|\\x00)|b'", line)
        }
    )


def test_what_doctor_and_bench_write_is_listed_and_they_connect_to_nobody(place):
    run(place, "doctor", "--quick", "--out", "asked.json")
    run(place, "doctor", "train.log", "--html", "asked.html")
    run(place, "doctor", "--seconds", "1", "--", sys.executable, "-c", "print(1)")
    run(place, "bench", "--only", "clock", "--quick", "--device", "cpu", "--out", "asked.bench")
    assert (place / "work" / "asked.html").exists()
    assert any("/tmp/gpudoc-" in line for line in notes(place)), "the hook saw nothing"
    assert strangers(place) == []
    assert connections(place) == []
    assert not list((place / "tmp").glob("gpudoc-*")), "removed at the end"


@pytest.mark.slow
def test_what_tune_and_train_write_is_listed_and_they_connect_to_nobody(place):
    common = ("--model", "quickstart", "--device", "cpu", "--memory-limit", "1GiB")
    run(place, "tune", *common, "--budget", "60s", "--only", "batch", "--max-batch", "4", "--html", "asked.html")
    assert list((place / "data" / "gpudoc" / "profiles").glob("*.yaml"))
    assert list((place / "data" / "gpudoc" / "journals").glob("*.jsonl"))
    run(place, "train", *common, "--steps", "3", "--num-workers", "1", "--trace", "1", "--gpus", "2")
    assert (place / "work" / "runs" / "quickstart" / "summary.json").exists()
    assert strangers(place) == []
    assert connections(place) == []


def test_a_path_that_is_not_listed_is_found(place):
    (place / "notes").write_text(f"file {place}/home/.secret/usage.db\nconnect ('93.184.216.34', 443)\n")
    (place / "data" / "other").write_text("")
    assert strangers(place) == [f"{place}/data/other", f"{place}/home/.secret/usage.db"]
    assert connections(place) == ["connect ('93.184.216.34', 443)"]
