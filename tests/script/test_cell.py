"""What a trial does in its cell stays there: files, shared memory, sockets, the network, processes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest

from gpudoc.script.cell import Cell, blame, what_can_be
from gpudoc.script.launch import start
from tests.script.family import alive, marked

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOBODY = 65534

pytestmark = pytest.mark.skipif(not what_can_be().is_whole, reason="; ".join(what_can_be().why_not) or "-")
WAYS = [False, True] if os.geteuid() == 0 else [True]

# what people's scripts do: outputs, logs, caches, locks, shared memory, servers
WRITES = """
import json, os, pathlib, shutil, socket, sys
from multiprocessing import shared_memory
home, absolute = pathlib.Path(os.environ["HOME"]), pathlib.Path(sys.argv[1])
pathlib.Path("new.txt").write_text("new")
pathlib.Path("kept/log.txt").open("a").write("more")
pathlib.Path("kept/old.pt").unlink()
shutil.rmtree("out")
os.makedirs("out/deep")
assert os.listdir("out") == ["deep"], "an old file is seen in a folder that was made anew"
os.rename("kept/moved.txt", "out/moved.txt")
(home / ".cache").mkdir(exist_ok=True)
(home / ".cache" / "model").write_text("x")
absolute.write_text("changed")
pathlib.Path("/tmp", sys.argv[2]).write_text("x")
pathlib.Path("/dev/shm", sys.argv[2]).write_text("x")
block = shared_memory.SharedMemory(sys.argv[2] + "-block", create=True, size=1 << 20)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[2] + ".sock")
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname())
# leaves at once, so that nothing of this is tidied up
sys.stdout.write("wrote it all: " + "".join(pathlib.Path("kept", name).read_text() for name in ("log.txt", "same.txt")))
sys.stdout.flush()
os._exit(0)
"""


def tree(*folders):
    """Every file below the folders, with what is in it and when it was changed."""
    found = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            text = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (path.lstat().st_mode, path.lstat().st_mtime_ns, text)
    return found


@pytest.fixture
def user_folders(tmp_path, monkeypatch):
    home, project, elsewhere = tmp_path / "home", tmp_path / "a, project: mine", tmp_path / "elsewhere"
    for folder in (home, project / "kept", project / "out", elsewhere):
        folder.mkdir(parents=True)
    for name in ("kept/log.txt", "kept/old.pt", "kept/same.txt", "kept/moved.txt", "out/old.txt"):
        (project / name).write_text(f"{name};")
    (elsewhere / "data.json").write_text("as it was")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(project)
    return tmp_path


@pytest.fixture
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


def finish(running):
    with running:
        while (code := running.poll(1.0)) is None:
            pass
        return code, running.tail()


def in_cell(scratch, *command, user=WAYS[0], **cell):
    place = Cell(scratch=scratch, isolation=dataclasses.replace(what_can_be(), user=user), **cell)
    return finish(start(command, environment=os.environ, output=scratch / "output", cell=place))


@pytest.mark.parametrize("user", WAYS, ids=lambda user: "user namespace" if user else "root")
@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "on disk"])
def test_what_a_script_writes_leaves_nothing(user_folders, scratch, user, in_memory):
    (user_folders / "writes.py").write_text(WRITES)
    before, name = tree(user_folders), f"gpudoc-test-{os.getpid()}"
    code, said = in_cell(
        scratch, sys.executable, user_folders / "writes.py", user_folders / "elsewhere" / "data.json", name,
        user=user, in_memory=in_memory,
    )  # fmt: skip
    assert (code, said) == (0, "wrote it all: kept/log.txt;morekept/same.txt;")
    assert tree(user_folders) == before
    assert not [path for folder in ("/tmp", "/dev/shm") for path in pathlib.Path(folder).glob(f"{name}*")]
    assert [path.name for path in scratch.iterdir()] == ["output"]


# what changes the machine itself: entries in the folders that the kernel keeps, and settings; each says its errno, or 0
TRACES = """
import errno, os, pty, sys
def attempt(what, *arguments):
    try:
        what(*arguments)
        return 0
    except OSError as problem:
        return problem.errno
def write(path):
    with open(path, "r+b", buffering=0) as file:
        file.write(file.read())
points = {line.split()[4] for line in open("/proc/self/mountinfo")} | {"/dev", "/sys"}
memory = os.path.realpath("/dev/shm")
for point in sorted(points):
    if point.startswith(("/dev", "/sys")) and os.path.isdir(point) and point not in ("/dev/pts", memory):
        name = f"{point}/{sys.argv[1]}"
        if not attempt(os.mkdir, name):
            print("made", name)
for path in ("/proc/sys/kernel/hostname", "/proc/irq/default_smp_affinity"):
    if os.path.exists(path) and not attempt(write, path):
        print("written", path)
# what a script needs is there
open("/dev/null", "wb").write(b"x")
os.write(pty.openpty()[0], b"x")
open(f"{memory}/{sys.argv[1]}", "w").close()
"""


@pytest.mark.parametrize("user", WAYS, ids=lambda user: "user namespace" if user else "root")
def test_a_trial_cannot_change_the_machine(scratch, user):
    name = f"gpudoc-trace-{os.getpid()}"
    try:
        assert in_cell(scratch, sys.executable, "-c", TRACES, name, user=user) == (0, "")
    finally:
        left = [path for top in ("/dev", "/sys/fs") for path in pathlib.Path(top).rglob(name)]
        for path in left:
            path.rmdir()
    assert left == []


def test_the_same_script_outside_a_cell_leaves_all_of_it(user_folders, scratch):
    (user_folders / "writes.py").write_text(WRITES)
    before, name = tree(user_folders), f"gpudoc-test-{os.getpid()}"
    command = [sys.executable, user_folders / "writes.py", user_folders / "elsewhere" / "data.json", name]
    code, said = finish(start(command, environment=os.environ, output=scratch / "output"))
    assert code == 0, said
    left = [path for folder in ("/tmp", "/dev/shm") for path in pathlib.Path(folder).glob(f"{name}*")]
    for path in left:
        path.unlink()
    assert len(left) == 3
    assert {pathlib.Path(path).name for path in tree(user_folders).keys() - before.keys()} >= {"new.txt", "model"}


@pytest.mark.parametrize("user", WAYS)
def test_the_scratch_folder_is_the_one_place_that_stays(scratch, user):
    assert in_cell(scratch, "sh", "-c", f"echo event > {scratch}/events; echo $PWD", user=user)[0] == 0
    assert (scratch / "events").read_text() == "event\n"


def test_the_network_ends_at_the_cell_unless_it_is_allowed(scratch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        call = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        assert "refused" in in_cell(scratch, sys.executable, "-c", call)[1]
        assert in_cell(scratch, sys.executable, "-c", call, network=True)[0] == 0


def test_a_server_of_the_machine_behind_a_socket_file_is_out_of_reach(scratch):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(scratch.parent / "service.sock"))
        server.listen()
        call = f"import socket; socket.socket(socket.AF_UNIX).connect({str(scratch.parent / 'service.sock')!r})"
        assert "refused" in in_cell(scratch, sys.executable, "-c", call)[1]


def test_a_trial_cannot_signal_a_process_outside(scratch):
    with subprocess.Popen(["sleep", "60"]) as other:
        assert "No such process" in in_cell(scratch, "sh", "-c", f"kill -9 {other.pid}")[1]
        assert other.poll() is None
        other.kill()


def test_a_trial_that_writes_more_than_its_room_is_told_from_a_full_disk(scratch):
    code = "import sys; open('/var/tmp/gpudoc-test-large', 'wb').write(bytes(80 << 20))"
    cell = Cell(scratch=scratch, room_bytes=64 << 20)
    running = start([sys.executable, "-c", code], environment=os.environ, output=scratch / "output", cell=cell)
    ended, said = finish(running)
    assert ended == 1
    assert running.full
    what, hint = blame(said, full=running.full, room_bytes=cell.room, network=False)
    assert "64 MiB" in what
    assert "--in-place" in hint
    assert not pathlib.Path("/var/tmp/gpudoc-test-large").exists()


def test_what_a_cell_is_to_blame_for_is_told_from_the_scripts_own_error(scratch):
    _, said = in_cell(scratch, sys.executable, "-c", "import urllib.request as u; u.urlopen('http://pytorch.org')")
    assert blame(said, full=False, room_bytes=1, network=False)[1] == "--allow network"
    assert blame(said, full=False, room_bytes=1, network=True) is None
    assert blame("ValueError: no", full=False, room_bytes=1, network=False) is None


def test_room_is_a_share_of_the_memory_that_is_free(scratch, monkeypatch):
    from gpudoc.script import cell as module

    monkeypatch.setattr(module, "memory_free_bytes", lambda: 8 << 30)
    assert Cell(scratch=scratch).room == 1 << 30
    monkeypatch.setattr(module, "memory_free_bytes", lambda: 1 << 20)
    assert Cell(scratch=scratch).room == 64 << 20


ASK = "from gpudoc.script.cell import what_can_be as w; f = w(); print(f.files, f.network, f.processes, *f.why_not)"


@pytest.mark.parametrize(
    ("none", "says"),
    [
        ("user mnt", ["False False False", "user.max_mnt_namespaces allows no more", "user.max_user_namespaces"]),
        ("net", ["True False True", "user.max_net_namespaces allows no more"]),
        ("pid", ["True True False", "user.max_pid_namespaces allows no more"]),
        ("", ["True True True\n"]),
    ],
)
def test_what_cannot_be_isolated_is_named_with_its_reason(none, says):
    limits = "; ".join(f"echo 0 > /proc/sys/user/max_{name}_namespaces" for name in none.split()) or "true"
    done = subprocess.run(
        ["unshare", "--map-root-user", "sh", "-c", f'{limits}; exec "$0" -c "$1"', sys.executable, ASK],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert all(part in done.stdout for part in says), done


def test_without_a_namespace_of_processes_all_of_them_end_too(scratch):
    environment = marked()
    cell = Cell(scratch=scratch, isolation=dataclasses.replace(what_can_be(), processes=False))
    script = (
        "sleep 600 & setsid sleep 601 & (setsid sleep 602 &) ; echo x > /tmp/gpudoc-test-no-pid; ls /proc/$$ | wc -l"
    )
    code, said = finish(start(["sh", "-c", script], environment=environment, output=scratch / "output", cell=cell))
    assert code == 0
    assert int(said) > 10
    assert alive(environment) == []
    assert not pathlib.Path("/tmp/gpudoc-test-no-pid").exists()


def as_nobody(code, *arguments, cwd):
    """Python code as an ordinary user, in a Python that such a user may start."""
    return subprocess.run(
        [shutil.which("python3", path="/usr/bin"), "-c", textwrap.dedent(code), *map(str, arguments)],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd=cwd, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


KEEP = """
import json, os, sys, tempfile
from gpudoc.script.keeper import main
scratch = tempfile.mkdtemp(dir="/tmp", prefix="gpudoc-test-")
for name in ("place", "layers"):
    os.mkdir(f"{scratch}/{name}")
plan = {"place": f"{scratch}/place", "disk": f"{scratch}/layers", "room_bytes": 64 << 20, "shared": []}
plan["in_memory"] = True
near = [os.getcwd(), "/tmp", "/var/tmp"]
cell = {"user": True, "network": True, "processes": True, "near": near, "plan": plan}
order = {"told": os.open(os.devnull, os.O_WRONLY), "parent": os.getppid(), "command": sys.argv[1:], "cell": cell}
to_read, to_write = os.pipe()
with os.fdopen(to_write, "w") as file:
    json.dump({**order, "patience_s": 0, "memory_limit_bytes": None}, file)
main([str(to_read)])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test here runs as an ordinary user")
def test_an_ordinary_user_writes_on_the_way_through_folders_of_others(tmp_path_factory):
    folder = pathlib.Path("/tmp", f"gpudoc-test-{os.getpid()}")
    try:
        (folder / "lab" / "own").mkdir(parents=True)
        (folder / "lab" / "own" / "log").write_text("a\n")
        (folder / "lab" / "shared").mkdir(mode=0o777)
        (folder / "lab" / "shared").chmod(0o777)
        os.chown(folder / "lab" / "own", NOBODY, NOBODY)
        os.chown(folder / "lab" / "own" / "log", NOBODY, NOBODY)
        if as_nobody("import gpudoc.script.keeper", cwd=folder).returncode:
            pytest.skip("an ordinary user cannot start a Python with gpudoc here")
        script = (
            "id -u; echo b >> own/log; cat own/log; echo c > shared/new; cat shared/new; "
            "echo d > /tmp/gpudoc-test-nobody; echo $?"
        )
        done = as_nobody(KEEP, "sh", "-c", script, cwd=folder / "lab")
        lines = [line for line in done.stdout.splitlines() if not line.startswith("{")]
        assert lines == [str(NOBODY), "a", "b", "c", "0"], done
        assert (folder / "lab" / "own" / "log").read_text() == "a\n"
        assert not list((folder / "lab" / "shared").iterdir())
        assert not pathlib.Path("/tmp/gpudoc-test-nobody").exists()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
