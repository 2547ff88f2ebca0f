"""A command runs as it would by itself: its output, its end, its signals; and what is known of it is told."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from gpudoc.errors import GpudocError
from gpudoc.script import hang
from gpudoc.script.apply import Applied
from gpudoc.script.messages import HookOrder, LoaderOrder
from gpudoc.script.run import run
from gpudoc.train.watch import watch
from gpudoc.train.watch.stacks import stands_of as stacks_of
from tests.script.family import MARK, alive, marked
from tests.script.scripts import EAGER
from tests.waiting import wait_until

TOLD = [sys.executable, "-m", "tests.script.told"]


class Heard:
    def __init__(self):
        self.streams = {1: b"", 2: b""}
        self.said = []
        self.statuses = []

    def output(self, number, data):
        self.streams[number] += data

    def say(self, text):
        self.said.append(text)

    def status(self, status):
        self.statuses.append(status)


def run_here(*words, order=None, **more):
    heard = Heard()
    return heard, run(Applied(words=words, order=order or HookOrder(purpose="run")), heard, **more)


@pytest.mark.parametrize(
    ("script", "code", "exit_code"),
    [("exit 0", 0, 0), ("exit 3", 3, 3), ("exit 255", 255, 255), ("kill -SEGV $$", -11, 139), ("kill -9 $$", -9, 137)],
)
def test_output_and_end_are_the_commands(script, code, exit_code):
    heard, finished = run_here("sh", "-c", f"echo out; echo err >&2; {script}")
    assert heard.streams == {1: b"out\n", 2: b"err\n"}
    assert (finished.code, finished.exit_code) == (code, exit_code)
    assert finished.seen == ()
    assert finished.status is finished.split is None
    assert not finished.interrupted


def test_a_command_that_cannot_be_started_is_the_users_mistake():
    with pytest.raises(GpudocError, match="no-such-program") as caught:
        run_here("no-such-program")
    assert caught.value.exit_code == 2


def test_standard_input_is_the_commands():
    code = (
        "from tests.script.test_run import run_here; import sys; "
        "sys.stdout.write(run_here('cat')[0].streams[1].decode())"
    )
    done = subprocess.run([sys.executable, "-c", code], input="typed\n", capture_output=True, text=True, check=True)
    assert done.stdout == "typed\n"


def test_the_order_reaches_the_script_and_what_it_told_is_known(monkeypatch):
    order = HookOrder(purpose="run", keys=("train.py:4",), loader=LoaderOrder(num_workers=4))
    heard, finished = run_here(*TOLD, order=order)
    assert b'"num_workers": 4' in heard.streams[1]
    assert finished.status.steps == 10
    assert finished.status.samples_per_s == 40.0
    assert finished.status.wait_share == 0.5
    assert finished.status.peak_bytes == 3 << 20
    assert finished.split.data_wait == finished.split.steps == 1.0
    assert finished.split.start + finished.split.end <= finished.seconds
    assert finished.ranks[0].loaders[0].refused == {"pin_memory": "no GPU"}


def test_what_the_profile_sets_stands_in_the_commands_environment():
    words = ("sh", "-c", "echo $OMP_WAIT_POLICY $HOME")
    heard = Heard()
    run(Applied(words=words, order=HookOrder(purpose="run"), environment={"OMP_WAIT_POLICY": "passive"}), heard)
    assert heard.streams[1].decode().split() == ["passive", os.environ["HOME"]]


def test_a_line_that_is_no_event_does_not_end_the_run():
    heard, finished = run_here("sh", "-c", 'echo nonsense > "$GPUDOC_SCRIPT_FOLDER/0-1.jsonl"; sleep 1.5; echo done')
    assert (finished.code, heard.streams[1]) == (0, b"done\n")
    assert [text for text in heard.said if "no longer watched" in text]


def test_the_cause_of_a_death_is_doctors():
    message = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "15.77 GiB of which 1.20 GiB is free. Of the allocated memory 13.90 GiB is allocated by PyTorch, and 120.00 "
        "is reserved by PyTorch but unallocated."
    )
    _, finished = run_here("sh", "-c", f"echo '{message}' >&2; exit 1")
    assert finished.report.findings[0].id == "oom_capacity"
    assert any("13.9" in seen.value for seen in finished.report.findings[0].evidence)
    assert run_here("sh", "-c", f"echo '{message}' >&2")[1].report is None


def test_who_outlives_the_command_is_asked_then_ended():
    environment = marked()
    code = (
        "from tests.script.test_run import run_here; from gpudoc.script import run as module; module.LEFT_S = 0.1; "
        "print(run_here('sh', '-c', 'trap \"\" TERM; sleep 600 & setsid sleep 601 & exit 4')[1].left)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("sleep (pid ") == 2
    assert alive(environment) == []


RUN = """
import signal, sys
# under nohup a shell cannot trap it
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from tests.script.test_run import Heard
from gpudoc.script.apply import Applied
from gpudoc.script.messages import HookOrder
from gpudoc.script.run import run
heard = Heard()
heard.say = lambda text: print(text.partition(":")[0], flush=True)
finished = run(Applied(words=("sh", "-c", sys.argv[1]), order=HookOrder(purpose="run")), heard)
print(finished.exit_code, finished.interrupted, finished.report is None, flush=True)
"""


class Run:
    """gpudoc in a separate process that runs a shell script, which says that it is ready in a file."""

    def __init__(self, tmp_path, script):
        self.environment = marked()
        self.ready = tmp_path / "ready"
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, script.replace("READY", f"touch {self.ready}")],
            env=self.environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        wait_until(self.ready.exists)

    def finish(self):
        said = self.process.communicate(timeout=120)[0]
        wait_until(lambda: alive(self.environment) == [])
        return said.splitlines()[-1].split() if said else []


DEAF = "trap '' INT TERM; sleep 600 & setsid sleep 601 & READY; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_goes_to_the_script_which_ends_in_its_own_way(tmp_path, number):
    run = Run(tmp_path, f"trap 'exit 75' {number}; READY; while :; do sleep 0.05; done")
    run.process.send_signal(number)
    assert run.finish() == ["75", "False", "False"]


def test_a_script_that_a_signal_to_us_ends_is_no_failure_to_explain(tmp_path):
    run = Run(tmp_path, "READY; sleep 600; exit 1")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == ["143", "True", "True"]


def test_ctrl_c_lets_the_script_end_by_itself(tmp_path):
    # a shell may lose an interrupt that comes just when its command ends, and os.system ignores one meanwhile
    code = "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(6)); "
    code += 'open(sys.argv[1].split()[1], "w").close(); time.sleep(600)'
    run = Run(tmp_path, f"exec {sys.executable} -c '{code}' 'READY'")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == ["6", "True", "True"]


def test_a_second_ctrl_c_ends_a_script_that_does_not_hear_the_first(tmp_path):
    run = Run(tmp_path, DEAF)
    run.process.send_signal(signal.SIGINT)
    wait_until(lambda: run.process.stdout.readline() == "interrupted\n")
    # two at once would be one wish
    time.sleep(0.4)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == ["130", "True", "True"]


def test_gpudoc_killed_leaves_nothing_running(tmp_path):
    run = Run(tmp_path, DEAF)
    assert len(alive(run.environment)) >= 5
    run.process.kill()
    run.finish()


STEPS = """
import sys, time
from gpudoc.train.ranks.pulse import FOLDER, OWN_CODE, open_pulse
import os
os.environ[FOLDER] = os.environ["GPUDOC_SCRIPT_FOLDER"]
pulse = open_pulse(0, 1)
for step in range(20):
    pulse.begin(step)
    pulse.now(OWN_CODE)
    time.sleep(0.05)
def wait():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.5)
wait()
pulse.begin(20)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def closely(monkeypatch):
    monkeypatch.setattr(hang, "_LOOK_S", 0.05)
    monkeypatch.setattr(watch, "FLOOR_S", 1.0)
    # where a busy machine kept it from looking until the script stood
    monkeypatch.setattr(watch, "FIRST_S", 10.0)
    # what it imports is there when the steps begin
    hang.Patience()
    assert stacks_of([]) == []
    monkeypatch.setattr(watch, "END_TIMES", 1.5)


def stepping(tmp_path, then_s=0.0):
    script = tmp_path / "train.py"
    script.write_text(STEPS)
    return [sys.executable, str(script), str(tmp_path / "go"), str(then_s)]


def test_a_script_that_stands_is_named_by_its_line_and_ended_where_that_is_asked_for(tmp_path, closely):
    heard, finished = run_here(*stepping(tmp_path), on_hang="end")
    assert finished.ended_for.at.startswith(f"{tmp_path.name}/train.py:")
    assert finished.ended_for.at.endswith(" in wait()")
    assert (finished.exit_code, finished.code, finished.interrupted, finished.report) == (1, -15, False, None)
    told = [text for text in heard.said if "nothing has moved for" in text]
    assert "in step 20 (a step usually takes " in told[-1]
    assert "the process runs its own code at " in told[-1]
    assert any("--on-hang end: the run ends when it stands for" in text for text in heard.said)


def test_by_default_it_is_reported_and_waited_for_until_it_goes_on(tmp_path, closely):
    heard = Heard()
    say = heard.say

    def answer(text):
        say(text)
        if "--on-hang end would end the run" in text:
            (tmp_path / "go").touch()

    heard.say = answer
    finished = run(Applied(words=tuple(stepping(tmp_path, 2.0)), order=HookOrder(purpose="run")), heard)
    assert (finished.code, finished.ended_for) == (0, None)
    assert [text for text in heard.said if "moving again after" in text]
    assert "in wait()" in finished.hangs[-1].at


def test_one_that_does_not_end_when_asked_is_ended_with_all_that_it_started(tmp_path, closely, monkeypatch):
    monkeypatch.setattr("gpudoc.script.run.LEFT_S", 0.2)
    environment = marked()
    monkeypatch.setenv(MARK, environment[MARK])
    words = stepping(tmp_path)
    _, finished = run_here("sh", "-c", "trap '' TERM; sleep 600 & " + shlex.join(words), on_hang="end")
    assert (finished.exit_code, finished.code) == (1, -9)
    assert alive(environment) == []


HANGS = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Data(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        while index == 160 + int(os.environ.get("WORLD_SIZE", "1")) // 2:
            time.sleep(0.05)
        return torch.zeros(4)

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
sampler = None
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = DistributedSampler(Data(), shuffle=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for x in DataLoader(Data(), batch_size=8 if sampler is None else 4, sampler=sampler, num_workers=1):
    model(x).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""


def test_a_training_script_whose_loader_worker_hangs_after_20_steps_is_named_by_the_workers_line(tmp_path, closely):
    (tmp_path / "train.py").write_text(EAGER + HANGS)
    _, finished = run_here(sys.executable, str(tmp_path / "train.py"), on_hang="end")
    line = HANGS.splitlines().index("            time.sleep(0.05)") + 1
    assert finished.ended_for.say.endswith(f"train.py:{line} in Data.__getitem__()")
    assert "the process reads its samples" in finished.ended_for.say
    assert (finished.exit_code, finished.ended_for.step) == (1, 20)


@pytest.mark.slow
def test_of_two_ranks_under_torchrun_the_one_that_hangs_is_named_and_whom_it_keeps(tmp_path, closely):
    (tmp_path / "train.py").write_text(HANGS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    heard, finished = run_here(*torchrun, str(tmp_path / "train.py"), on_hang="end")
    assert finished.ended_for.ranks == (1,)
    assert "rank 1 of 2 reads its samples at " in finished.ended_for.say
    assert "Data.__getitem__(); rank 0 waits for it in backward()" in finished.ended_for.say
    assert finished.exit_code == 1
    assert sum(text.startswith("  rank ") for text in heard.said) >= 2
