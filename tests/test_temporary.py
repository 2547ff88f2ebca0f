import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpudoc import temporary
from gpudoc.errors import GpudocError
from gpudoc.temporary import TemporaryFolder, find_folders, remove_folder, why_kept
from tests.namespaces import unshared

HOLD = """
import sys
from gpudoc.temporary import TemporaryFolder
held = TemporaryFolder("tune")
print(held.path, flush=True)
sys.stdin.read()
"""
SWEEP = "from gpudoc.tune.trial.sweep import clean_up_after_the_dead as it; it(); import os; print(os.getpid())"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder for temporary files, of this process and of those that it starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def owner(place, *before):
    """A process with a temporary folder, and that folder."""
    command = [*before, sys.executable, "-c", HOLD]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, Path(process.stdout.readline().strip())


def end(process):
    process.stdin.close()
    process.stdout.close()
    process.wait()


def test_it_is_this_users_alone_and_gone_when_it_is_closed(place):
    with TemporaryFolder("watch") as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(find_folders()) == [folder]
        assert why_kept(folder) == "in use by this process"
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "link").symlink_to(place)
    assert list(place.iterdir()) == []


def test_a_folder_is_in_use_until_its_owner_is_killed(place):
    process, folder = owner(place)
    assert why_kept(folder) == f"in use by process {process.pid}"
    assert remove_folder(folder) == f"in use by process {process.pid}"
    assert folder.is_dir()
    process.kill()
    process.wait()
    assert why_kept(folder) == ""
    assert remove_folder(folder) == ""
    assert not folder.exists()
    end(process)


def test_a_search_that_lives_in_another_pid_namespace_keeps_its_folder(place):
    """As from another container with the same /tmp: its process has a number that nobody has here."""
    command = unshared("--fork", "--pid", "--mount-proc", *(["--map-root-user"] if os.getuid() else []))
    process, folder = owner(place)
    seen = subprocess.run([*command, sys.executable, "-c", SWEEP], capture_output=True, text=True, check=True)
    assert int(seen.stdout) < process.pid, "it ran where no other process is seen"
    assert folder.is_dir()
    end(process)
    inside, folder = owner(place, *command)
    subprocess.run([sys.executable, "-c", SWEEP], check=True, capture_output=True)
    assert folder.is_dir()
    end(inside)
    subprocess.run([*command, sys.executable, "-c", SWEEP], check=True, capture_output=True)
    assert not folder.exists(), "what nobody uses is removed from there too"


def test_what_a_user_gave_such_a_name_stays(place):
    names = ("gpudoc-tune-20261121-results", "gpudoc-tune-20261121-abcdefgh", "gpudoc-job-1-abcdefgh")
    for name in names:
        (place / name).mkdir()
        (place / name / "notes.txt").write_text("mine")
    (place / names[1] / ".lock").write_text("somebody else's lock\n")
    (place / "gpudoc-tune-1-link0000").symlink_to(place / names[0])
    subprocess.run([sys.executable, "-c", SWEEP], check=True, capture_output=True)
    assert list(find_folders()) == []
    assert [(place / name / "notes.txt").read_text() for name in names] == ["mine"] * 3


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_a_folder_of_another_user_is_not_found_and_not_removed(place):
    process, folder = owner(place)
    process.kill()
    process.wait()
    os.chown(folder, 12345, 12345)
    assert list(find_folders()) == []
    os.chown(folder, 0, 0)
    assert list(find_folders()) == [folder]
    os.chown(folder / ".lock", 12345, 12345)
    assert list(find_folders()) == []
    end(process)


def test_a_folder_that_another_machine_made_on_a_shared_file_system_stays(place, monkeypatch):
    process, folder = owner(place)
    process.kill()
    process.wait()
    monkeypatch.setattr(temporary, "_boot", lambda: "another-boot-of-another-machine")
    assert why_kept(folder) == "", "nobody else can have a local folder open"
    (place / "mounts").write_text(f"1 2 0:1 / / rw - ext4 x rw\n3 1 0:2 / {place} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(temporary, "_MOUNTS", place / "mounts")
    assert why_kept(folder).startswith("created on another machine or before a restart (")
    assert remove_folder(folder).startswith("created on another machine")
    assert folder.is_dir()
    end(process)


def test_a_folder_stays_where_locks_cannot_be_seen(place, monkeypatch):
    process, folder = owner(place)
    process.kill()
    process.wait()
    monkeypatch.setattr("gpudoc.locks._lock", lambda *_: "No locks available")
    assert remove_folder(folder) == "it cannot be seen here whether it is in use: No locks available"
    assert folder.is_dir()
    end(process)


def test_a_removal_that_was_killed_on_its_way_can_be_done_later(place, monkeypatch):
    process, folder = owner(place)
    process.kill()
    process.wait()
    (folder / "a").write_text("")
    (folder / "b").write_text("")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    assert remove_folder(folder) == "Input/output error"
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert list(find_folders()) == [folder]
    assert remove_folder(folder) == ""
    end(process)


def test_rights_are_changed_inside_only(place):
    outside = place / "outside"
    outside.mkdir(mode=0o750)
    with TemporaryFolder("cell") as folder:
        (folder / "work").mkdir()
        (folder / "work" / "locked").mkdir(mode=0)
        (folder / "work" / "link").symlink_to(outside)
    assert not folder.exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750


def test_a_full_disk_is_named_with_a_way_out(tmp_path):
    command = unshared("--map-root-user", "--mount")
    fills = (
        "import os, sys, tempfile\n"
        "open(sys.argv[1] + '/filled', 'wb').truncate(0)\n"
        "handle = os.open(sys.argv[1] + '/filled', os.O_WRONLY)\n"
        "try:\n    while True: os.write(handle, b'x' * 4096)\n"
        "except OSError: pass\n"
        "from gpudoc.errors import GpudocError\n"
        "from gpudoc.temporary import TemporaryFolder\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "try: TemporaryFolder('job')\n"
        "except GpudocError as problem: print(problem.message, '|', problem.hint)\n"
        "print(os.listdir(sys.argv[1]))\n"
    )
    script = 'mount -t tmpfs -o size=16k tmpfs "$1" && TMPDIR="$1" exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [*command, "sh", "-c", script, "sh", str(tmp_path), sys.executable, fills], capture_output=True, text=True
    )
    if "mount:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert "cannot create a temporary folder: No space left on device | free some space" in done.stdout
    assert "['filled']" in done.stdout


def test_a_name_without_rights_is_named(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    with pytest.raises(GpudocError, match="cannot create a temporary folder: No such file"):
        TemporaryFolder("job")


def test_signals_that_end_a_process_leave_what_the_next_search_removes(place):
    for number in (signal.SIGKILL, signal.SIGHUP):
        process, folder = owner(place)
        process.send_signal(number)
        process.wait()
        assert folder.is_dir()
        subprocess.run([sys.executable, "-c", SWEEP], check=True, capture_output=True)
        assert not folder.exists()
        end(process)
