"""Real commands: their output, their exit, interrupts, and a watcher that is killed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.live import job as room
from gpudoc.facts.live.job import Listener, launch
from gpudoc.facts.live.tree import descendants
from tests.waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "tests" / "scripts"


class Heard:
    def __init__(self):
        self.streams = {1: b"", 2: b""}
        self.watches = []

    def sink(self, number, data):
        self.streams[number] += data


def run(*command, seconds=3.0):
    heard = Heard()
    end = launch(command, seconds=seconds, listener=Listener(sink=heard.sink, watched=heard.watches.append))
    return heard, end


def test_output_and_exit_code_pass_through():
    heard, end = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert heard.streams == {1: b"out\n", 2: b"err\n"}
    assert (end.exit_code, end.signal) == (3, None)
    assert end.watch is None
    assert end.log == "out\nerr\n"


def test_a_command_killed_by_a_signal_says_which():
    _, end = run("sh", "-c", "kill -SEGV $$")
    assert (end.exit_code, end.signal) == (None, signal.SIGSEGV)


def test_a_command_that_cannot_be_started():
    with pytest.raises(GpudocError, match=r"no-such-program: No such file"):
        run("no-such-program")


def test_python_output_comes_at_once_and_stdin_is_the_callers():
    heard, end = run(sys.executable, "-c", "import sys, os; print(os.environ['PYTHONUNBUFFERED'])")
    assert heard.streams[1] == b"1\n"
    assert end.exit_code == 0


def test_no_files_are_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    heard, _ = run("sh", "-c", 'ls "$1" | head -c 11', "sh", str(tmp_path))
    assert heard.streams[1] == b"gpudoc-job-"
    assert list(tmp_path.iterdir()) == []


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SCRIPT_SECONDS": "120", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


LAUNCH = """
import json, sys
from gpudoc.facts.live import job
from gpudoc.facts.live.job import Listener, launch
from gpudoc.facts.live.tree import descendants
seen = []
end = launch(sys.argv[2:], seconds=float(sys.argv[1]), listener=Listener(sink=lambda *_: None, watched=seen.append))
stacks = end.watch.stacks if end.watch else None
print(json.dumps({"code": end.exit_code, "signal": end.signal, "interrupted": bool(seen) and seen[0].interrupted,
                  "threads": len(getattr(stacks, "threads", ())), "why": getattr(stacks, "reason", ""),
                  "ended_by_user": end.interrupted}))
"""


def test_a_training_command_is_watched_from_its_first_step_by_an_ancestor(tmp_path):
    speed, seen = tmp_path / "speed", tmp_path / "seen"
    code = f"import os; os.environ.update(SPEED_FILE={str(speed)!r}, SCRIPT_UNTIL={str(seen)!r})\n"
    # the script ends once it was watched
    watched = f"lambda watch: (seen.append(watch), open({str(seen)!r}, 'w').close())"
    code += LAUNCH.replace("watched=seen.append", f"watched={watched}")
    with start(code, 3, sys.executable, SCRIPTS / "healthy_mlp.py") as watcher:
        answer = json.loads(watcher.communicate(timeout=200)[0])
    assert answer["code"] == 0
    assert answer["threads"] >= 1, answer["why"]
    assert speed.read_text().count("\n") > 5


HANGS = """
import sys, threading, time
def quick_steps():
    for step in range(100):
        sum(range(step))
def wait_for_nobody():
    print("hangs", flush=True)
    threading.Event().wait()
quick_steps()
wait_for_nobody()
"""
# asked to end as soon as looks say that it stands still for long enough
ASK_TO_END = """
import os, signal, sys
from gpudoc.facts.live import job
asked = []
before = job.Stillness.takes
def takes(self, look):
    told = before(self, look)
    if self.seen.is_telling and not asked:
        asked.append(os.kill(os.getpid(), int(sys.argv[1])))
    return told
job.Stillness.takes = takes
seen = []
end = job.launch(sys.argv[2:], seconds=3.0, listener=job.Listener(sink=lambda *_: None, watched=seen.append))
from gpudoc.doctor.live.judge import judge, judge_end
report = judge_end(judge(seen[0]), end)
print(report.findings[0].id, report.findings[0].title, sep=": ")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_script_that_hangs_after_quick_steps_is_named_with_its_line_when_it_is_asked_to_end(tmp_path, number):
    script = tmp_path / "train.py"
    script.write_text(HANGS)
    with start(ASK_TO_END, int(number), sys.executable, script) as watcher:
        said = watcher.communicate(timeout=100)[0]
    # four seconds of it are enough, and nobody waits for ten
    assert said.startswith("job_hung: Nothing has moved for")
    line = HANGS.splitlines().index("    threading.Event().wait()") + 1
    assert said.strip().endswith(f"train.py:{line}")


def test_a_job_that_stands_still_after_its_watch_is_looked_at_again(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text(HANGS)
    monkeypatch.setattr(room, "IDLE_S", 1.0)
    monkeypatch.setattr(room, "IDLE_LOOK_S", 0.2)
    monkeypatch.setattr(room, "LOOK_AGAIN_S", 3.0)
    monkeypatch.setattr(room._Job, "wait_until_it_trains", lambda *_: None)
    seen, watched = [], []

    def stalled(again):
        seen.append(again)
        # it would stand there for ever
        os.kill(again.pid, signal.SIGKILL)

    listener = Listener(sink=lambda *_: None, watched=watched.append, stalled=stalled)
    end = launch((sys.executable, str(script)), seconds=3.0, listener=listener)
    assert (end.signal, watched) == (signal.SIGKILL, [])
    stacks = seen[0].stacks
    stands = {stacks.frames[i].function for t in stacks.threads if t.is_main for sample in t.samples for i in sample}
    assert "wait_for_nobody" in stands


@pytest.mark.slow
def test_ranks_that_a_launcher_starts_are_watched_from_their_first_step():
    code = "import os; os.environ['SCRIPT_SECONDS'] = '10'\n"
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    with start(code + LAUNCH, 3, sys.executable, *ranks, SCRIPTS / "healthy_mlp.py") as watcher:
        answer = json.loads(watcher.communicate(timeout=200)[0])
    assert answer["code"] == 0
    # those of both ranks and of their launcher; looked at by the launcher's stack, the job ends unseen
    assert answer["threads"] >= 3


def test_the_first_rank_of_a_launcher_is_the_one_that_trains(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    sleeps = "import time; print(1, flush=True); time.sleep(60)"
    launches = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {sleeps!r}], env=dict(os.environ, LOCAL_RANK='0'))\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", launches], stdout=subprocess.PIPE, text=True) as launcher:
        said = {int(launcher.stdout.readline()), int(launcher.stdout.readline())}
        rank = max(said)
        try:
            assert room._trainer(descendants(launcher.pid)) == rank
            assert room._trainer([launcher.pid]) == launcher.pid
            assert room._trainer([]) is None
        finally:
            os.kill(rank, signal.SIGKILL)
            launcher.kill()


COUNTER = """
import pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])
def note(text):
    with place.open("a") as file:
        file.write(text + "\\n")
def interrupted(*_):
    note("INT")
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
note("begun")
for _ in range(600):
    time.sleep(0.1)
    note("tick")
    print("a line", flush=True)
"""


def wait_for(place, text, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if place.exists() and text in place.read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"{text!r} did not appear in {place}")


@pytest.fixture
def counter(tmp_path):
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    return script, tmp_path / "notes"


@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_reaches_the_command_once_and_its_own_end_counts(counter, whole_group):
    script, notes = counter
    with start(LAUNCH, 3, sys.executable, script, notes) as watcher:
        wait_for(notes, "begun")
        (os.killpg if whole_group else os.kill)(watcher.pid, signal.SIGINT)
        wait_for(notes, "INT")
        # a second one would have come by now
        ticks = notes.read_text().count("tick")
        wait_until(lambda: notes.read_text().count("tick") > ticks + 5)
        assert notes.read_text().count("INT") == 1
        os.kill(watcher.pid, signal.SIGTERM)
        answer = json.loads(watcher.communicate(timeout=60)[0])
    assert (answer["code"], answer["signal"], answer["ended_by_user"]) == (7, None, True)


def test_the_command_goes_on_unharmed_when_the_watcher_is_killed(counter):
    script, notes = counter
    try:
        with start(LAUNCH, 3, sys.executable, script, notes) as watcher:
            wait_for(notes, "tick")
            watcher.kill()
            watcher.communicate()
        seen = notes.read_text().count("tick")
        wait_until(lambda: notes.read_text().count("tick") > seen + 5)
    finally:
        _end(str(script))


SPEAKS = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    print("still there", flush=True)
    time.sleep(0.02)
"""


def test_the_output_of_a_job_whose_watcher_was_killed_stays_until_the_job_ends(tmp_path, monkeypatch):
    from gpudoc.temporary import find_folders, remove_folder, why_kept

    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with start(LAUNCH, 3, sys.executable, "-c", SPEAKS, tmp_path / "ends") as watcher:
        wait_until(lambda: [one for one in find_folders() if (one / "stdout").exists()])
        (folder,) = find_folders()
        wait_for(folder / "stdout", "still there")
        assert why_kept(folder) == f"in use by process {watcher.pid}"
        watcher.kill()
        watcher.communicate()
    assert why_kept(folder) == "in use by a job that is still writing to it"
    assert remove_folder(folder) == "in use by a job that is still writing to it"
    size = (folder / "stdout").stat().st_size
    wait_until(lambda: (folder / "stdout").stat().st_size > size)
    (tmp_path / "ends").touch()
    wait_until(lambda: why_kept(folder) == "")
    assert remove_folder(folder) == ""


HEARS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGHUP, lambda *_: (print("hung up", file=open(sys.argv[1], "a"), flush=True), sys.exit(3)))
print("begun", file=open(sys.argv[1], "a"), flush=True)
while not pathlib.Path(sys.argv[1] + ".end").exists():
    time.sleep(0.02)
"""


@pytest.mark.parametrize("ignored", [False, True], ids=["as it is", "nohup"])
def test_a_hangup_is_the_commands_as_it_would_be_without_a_watcher(tmp_path, ignored):
    notes = tmp_path / "notes"
    before = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" if ignored else ""
    with start(before + LAUNCH, 3, sys.executable, "-c", HEARS, notes) as watcher:
        wait_for(notes, "begun")
        os.kill(watcher.pid, signal.SIGHUP)
        if ignored:
            pathlib.Path(f"{notes}.end").touch()
        answer = json.loads(watcher.communicate(timeout=60)[0])
    assert (answer["code"], "hung up" in notes.read_text()) == ((0, False) if ignored else (3, True))


def test_a_training_job_goes_on_when_the_watcher_is_killed_while_it_samples(tmp_path):
    speed = tmp_path / "speed"
    code = f"import os; os.environ['SPEED_FILE'] = {str(speed)!r}\n"
    script = str(SCRIPTS / "healthy_mlp.py")
    try:
        with start(code + LAUNCH, 60, sys.executable, script, tmp_path) as watcher:
            until = time.monotonic() + 120
            while not _samplers(watcher.pid) and time.monotonic() < until:
                time.sleep(0.2)
            assert _samplers(watcher.pid), "sampling did not begin"
            wait_for(speed, "[")
            watcher.kill()
            watcher.communicate()
        seen = speed.read_text().count("\n")
        wait_until(lambda: speed.read_text().count("\n") > seen + 3)
    finally:
        _end(str(tmp_path))


def _samplers(parent):
    from gpudoc.facts.live.tree import descendants, read_words

    words = {pid: read_words(pid) for pid in descendants(parent)}
    return [pid for pid, command in words.items() if command[1:2] == ("record",)]


def _end(mark):
    """End what carries `mark` in its command line, and the sampler above it."""
    from gpudoc.facts.live.tree import read_words

    for place in pathlib.Path("/proc").iterdir():
        if place.name.isdigit() and any(mark in word for word in read_words(int(place.name))):
            parent = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            os.kill(int(place.name), signal.SIGKILL)
            if any("py-spy" in word for word in read_words(parent)[:1]):
                os.kill(parent, signal.SIGKILL)
