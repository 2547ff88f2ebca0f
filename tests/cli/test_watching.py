"""`gpudoc doctor --pid` and `gpudoc doctor -- COMMAND` as a person calls them, with real jobs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from gpudoc.cli import app

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "scripts"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "SCRIPT_SECONDS": "150", "OMP_NUM_THREADS": "1"}


def doctor(*arguments, timeout=200):
    return subprocess.run(
        [sys.executable, "-m", "gpudoc", "doctor", *map(str, arguments)],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=timeout, check=False,
    )  # fmt: skip


@pytest.fixture
def job(tmp_path):
    """Starts a script of tests/scripts and waits for its steps."""
    started = []

    def start(name):
        speed = tmp_path / f"{name}.speed"
        process = subprocess.Popen(
            [sys.executable, SCRIPTS / f"{name}.py"], env={**ENVIRONMENT, "SPEED_FILE": str(speed)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        until = time.monotonic() + 120
        while time.monotonic() < until and not (speed.exists() and speed.read_text().count("\n") > 3):
            assert process.poll() is None
            time.sleep(0.2)
        return process

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


SAMPLE = (
    ("workers_none", "too_few_workers"),
    ("workers_two_latency", "too_few_workers"),
    ("python_metric", "python_bound"),
    ("checkpoint_each", "checkpoint_too_often"),
    ("logging_prints", "logging_each_step"),
    ("healthy_conv", "compute_bound"),
)
EVERY_SAVE = ("python_metric",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [row if row[0] in EVERY_SAVE else pytest.param(*row, marks=pytest.mark.slow) for row in SAMPLE],
)
def test_a_planted_cause_is_the_first_finding(job, name, expected):
    process = job(name)
    done = doctor("--pid", process.pid, "--seconds", 5, "--json")
    document = json.loads(done.stdout)
    assert document["findings"][0]["id"] == expected, document["findings"][0]
    assert document["verdict"] == ("healthy" if expected == "compute_bound" else "warning")
    assert document["source"] == "process"
    assert document["crashed"] == []
    assert done.returncode == 0
    assert process.poll() is None


def test_what_is_written_to_files_is_without_secrets(tmp_path):
    secret = "hf_" + "a1B2c3D4e5F6g7H8"
    script = tmp_path / "secretive.py"
    script.write_text(f"print(flush=True)\nwhile True:\n    sum(ord(c) for c in 'token={secret}' * 50)\n")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        process.stdout.readline()
        out, page = tmp_path / "out.txt", tmp_path / "page.html"
        done = doctor("--pid", process.pid, "--seconds", 2, "--out", out, "--html", page, "--markdown")
    finally:
        process.kill()
        process.communicate()
    assert "secretive.py" in done.stdout
    assert done.stderr.splitlines()[-2:] == [f"wrote {out}", f"wrote {page}"]
    for text in (done.stdout, out.read_text(), page.read_text()):
        assert secret not in text


@pytest.mark.slow
def test_the_screen_and_the_page_of_a_running_job(job, tmp_path):
    process = job("workers_none")
    done = doctor("--pid", process.pid, "--seconds", 4, "--html", tmp_path / "page.html", "--fail-on", "warning")
    assert done.returncode == 1
    assert "[too_few_workers" in done.stdout
    assert "<svg" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--pid", 4194200), "no process 4194200 runs here"),
        (("--pid", 1, "--seconds", 0.2), "too short"),
        (("--pid", 1, "--", "true"), "exclude each other"),
        (("--", "no-such-program"), "cannot start the command"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments, told, capfd):
    assert app.run(["doctor", *map(str, arguments)]) == 2
    out, err = capfd.readouterr()
    assert told in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.slow
def test_a_training_command_is_watched_and_its_output_passes_through():
    environment = {**ENVIRONMENT, "SCRIPT_SECONDS": "12"}
    command = [sys.executable, "-m", "gpudoc", "doctor", "--seconds", "5", "--json", "--", sys.executable]
    script = (
        "import runpy, sys; print('hello from the job'); sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2])"
    )
    done = subprocess.run(
        [*command, "-c", script, SCRIPTS, SCRIPTS / "workers_none.py"],
        capture_output=True, text=True, env=environment, timeout=200, check=False,
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["command"] == {"exit_code": 0, "signal": None}
    assert document["findings"][0]["id"] == "too_few_workers", document["findings"][0]
    assert "hello from the job" in done.stderr
    assert done.returncode == 0


def test_a_command_that_fails_keeps_its_exit_code_and_its_log_is_judged():
    code = "import sys; print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'); sys.exit(5)"
    done = doctor("--json", "--", sys.executable, "-c", code)
    document = json.loads(done.stdout)
    assert done.returncode == 5
    assert document["command"] == {"exit_code": 5, "signal": None}
    assert document["findings"][0]["id"].startswith("oom")
    plain = doctor("--", sys.executable, "-c", code)
    assert plain.returncode == 5
    assert "oom" in plain.stdout


def test_a_command_too_short_to_watch_says_so_in_one_line():
    done = doctor("--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("? Nothing to judge: the command ended with exit code 0")
    assert done.stdout == ""


def test_a_command_that_a_signal_ends_gives_the_shells_code():
    done = doctor("--json", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + 15
    assert json.loads(done.stdout)["command"] == {"exit_code": None, "signal": 15}


@pytest.mark.skipif(
    os.geteuid() != 0 or not pathlib.Path("/usr/bin/python3").exists() or shutil.which("setpriv") is None,
    reason="needs root, setpriv and a Python that every user may run",
)
def test_another_users_job_is_judged_with_what_is_left():
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    spins = "print(flush=True)\nwhile True: sum(range(1000))"
    job = subprocess.Popen([*nobody, "/usr/bin/python3", "-c", spins], stdout=subprocess.PIPE)
    try:
        job.stdout.readline()
        command = [sys.executable, "-m", "gpudoc", "doctor", "--pid", str(job.pid), "--seconds", "2"]
        done = subprocess.run(
            ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", *command],
            capture_output=True, text=True, env=ENVIRONMENT, timeout=100, check=False,
        )  # fmt: skip
    finally:
        job.kill()
        job.communicate()
    assert "less certain: no stacks: ptrace refused" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(("given", "is_early"), [((), True), (("--seconds", "20"), False)])
def test_a_command_is_watched_until_its_cause_is_clear_unless_the_seconds_are_named(
    monkeypatch, capfd, given, is_early
):
    from gpudoc import facts
    from tests.facts.live.made import track, watch, worker

    slow = watch({1: "wait*80 backward*20", 2: "w_fetch*100"}, [track(cpu_s=4), worker(2, cpu_s=19)])
    asked = []

    def launch(command, *, seconds, listener):
        asked.append((seconds, listener.clear is not None and listener.clear(slow)))
        return facts.CommandOutcome(exit_code=0, signal=None, seconds=30.0, log="", watch=slow, interrupted=False)

    monkeypatch.setattr(facts, "launch", launch)
    app.run(["doctor", *given, "--", "python", "train.py"])
    capfd.readouterr()
    assert asked == [(20.0, "too_few_workers" if is_early else False)]


@pytest.mark.parametrize(("printed", "told"), [(b"epoch 2\n" * 40, 2), (b"", 1)])
def test_a_verdict_that_the_jobs_output_pushed_away_is_said_again_at_its_end(monkeypatch, capfd, printed, told):
    from gpudoc import facts
    from tests.facts.live.made import track, watch, worker

    slow = watch({1: "wait*60 backward*30 forward*10", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, cpu_s=19)])

    def launch(command, *, seconds, listener):
        listener.sink(1, b"epoch 1\n")
        listener.watched(slow)
        if printed:
            listener.sink(1, printed)
        return facts.CommandOutcome(exit_code=0, signal=None, seconds=30.0, log="", watch=slow, interrupted=False)

    monkeypatch.setattr(facts, "launch", launch)
    assert app.run(["doctor", "--", "python", "train.py"]) == 0
    out = capfd.readouterr().out
    assert out.count("[too_few_workers, ") == told
    assert ("What gpudoc found while the job was running:" in out.split("epoch 2")[-1]) == (told == 2)


@pytest.mark.parametrize(("code", "expected"), [(None, "job_hung"), (0, "too_few_workers")])
def test_a_standstill_after_the_watch_is_named_and_counts_unless_the_job_ends_well(monkeypatch, capfd, code, expected):
    from gpudoc import facts
    from tests.facts.live.made import track, watch, worker

    slow = watch({1: "wait*60 backward*30 forward*10", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, cpu_s=19)])
    idle = track(cpu_s=0, main_cpu_s=0, cpu=tuple((i / 2, 0.0) for i in range(13)))
    stands = watch({1: "sleep*120"}, [idle], seconds=6.0, still_before_s=30.0)
    pause = watch({1: "wait*10 backward*10 " * 6}, [track(cpu_s=0)], seconds=6.0)

    def launch(command, *, seconds, listener):
        listener.watched(slow)
        listener.stalled(pause)
        listener.stalled(stands)
        # said once
        listener.stalled(stands)
        return facts.CommandOutcome(
            exit_code=code, signal=None if code == 0 else 15, seconds=90.0, log="", watch=slow, interrupted=code is None
        )

    monkeypatch.setattr(facts, "launch", launch)
    assert app.run(["doctor", "--", "python", "train.py"]) == (0 if code == 0 else 128 + 15)
    assert capfd.readouterr().out.count("Nothing has moved for 36 s: it sleeps, at train.py:42") == 1
    app.run(["doctor", "--json", "--", "python", "train.py"])
    assert json.loads(capfd.readouterr().out)["findings"][0]["id"] == expected


def test_a_command_whose_end_nobody_knows_is_no_success(monkeypatch, capfd):
    from gpudoc import facts
    from tests.facts.live.made import track, watch, worker

    slow = watch({1: "wait*60 backward*30 forward*10", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, cpu_s=19)])

    def launch(command, *, seconds, listener):
        listener.watched(slow)
        # another process took it in
        return facts.CommandOutcome(exit_code=None, signal=None, seconds=30.0, log="", watch=slow, interrupted=False)

    monkeypatch.setattr(facts, "launch", launch)
    assert app.run(["doctor", "--", "python", "train.py"]) == 1
    assert "it is not known how the command ended" in capfd.readouterr().err
