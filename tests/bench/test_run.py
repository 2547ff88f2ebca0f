import json
import os
import signal
import subprocess
import sys

import pytest

from gpudoc.bench import run as room
from gpudoc.bench.environment import describe, make_plan
from gpudoc.bench.model import BENCH_VERSION, Record
from gpudoc.bench.run import Harvest, Options, _take, check_options, expected_s, run
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Host, Machine
from tests.bench.builders import machine, reading

H100_MACHINE = machine()
MACHINE = Machine(
    gpus=Absent("no driver"), pci=(), host=Host(cpu_flags=("avx2", "fma"), cpu_cores_physical=2, cpus_usable=2.0)
)
CLOCK = Options(only=("clock",), quick=True)


class Listener:
    def __init__(self, then=lambda text: None):
        self.heard, self.then = [], then

    def say(self, text):
        self.heard.append(text)

    def advance(self, done, total, text):
        self.heard.append(text)
        self.then(text)


def workers():
    """Processes of this user that measure for this test."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()[1:]]
    return [int(pid) for pid, parent, text in lines if "gpudoc.bench.worker" in text and int(parent) == os.getpid()]


def test_a_run_gives_rows_an_environment_and_its_progress():
    listener = Listener()
    record = run(CLOCK, MACHINE, listener)
    assert [row.name for row in record.measurements] == ["cpu_clock"]
    # on a machine that is busy with other work a round may find no time, and then that is said
    assert len(record.measurements[0].rounds) == 5 or record.not_measured
    assert record.environment["torch"]
    assert record.environment["bench_version"] == BENCH_VERSION
    assert not record.interrupted
    assert any("round 1" in text for text in listener.heard)
    assert workers() == []


def test_a_quick_run_names_the_rows_for_which_there_was_no_time(monkeypatch):
    def measured(_, harvest, __):
        harvest.readings += [reading("enough", "cpu", (1.0,) * 7), reading("few", "cpu", (1.0,) * 3)]

    monkeypatch.setattr(room, "_measure", measured)
    record = run(Options(quick=True), MACHINE)
    assert [row.name for row in record.measurements] == ["enough"]
    assert [(one.case, one.because[:14]) for one in record.not_measured] == [("few cpu", "3 of 7 samples")]
    # nothing is left out of a run that was to take its time
    assert len(run(Options(), MACHINE).measurements) == 2


def test_ctrl_c_keeps_what_is_measured_and_leaves_no_process():
    def interrupt(text):
        if "round trip" in text:
            signal.raise_signal(signal.SIGINT)

    record = run(Options(only=("clock", "loader"), quick=True), MACHINE, Listener(interrupt))
    assert record.interrupted
    assert record.measurements[0].name == "cpu_clock"
    assert workers() == []


def test_a_worker_that_is_killed_leaves_what_it_had_told():
    def kill(text):
        if "round trip" in text:
            for pid in workers():
                os.kill(pid, signal.SIGKILL)

    record = run(Options(only=("clock", "loader"), quick=True), MACHINE, Listener(kill))
    assert record.measurements
    assert "the measuring process ended by SIGKILL" in record.not_measured[-1].because
    assert not record.interrupted


def test_a_worker_that_hangs_is_given_up(monkeypatch):
    def stop(text):
        if "round trip" in text:
            # only from here on: importing torch is silent too, and slow on a busy machine
            monkeypatch.setattr(room, "SILENCE_S", 2.0)
            for pid in workers():
                os.killpg(pid, signal.SIGSTOP)

    record = run(Options(only=("clock", "loader"), quick=True), MACHINE, Listener(stop))
    assert record.measurements
    assert "nothing was heard for 2 s" in record.not_measured[-1].because
    assert workers() == []


def test_a_python_without_torch_is_said(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(GpudocError, match=r"torch cannot be imported by .*: ImportError: libcudart\.so\.12") as caught:
        run(CLOCK, MACHINE)
    assert caught.value.hint.startswith("gpudoc doctor")


def test_a_torch_in_the_users_folder_is_not_taken_for_the_library(monkeypatch, tmp_path):
    if sys.version_info < (3, 11):
        pytest.skip("Python before 3.11 has no safe path")
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')\n")
    monkeypatch.chdir(tmp_path)
    assert run(CLOCK, MACHINE).measurements


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(only=("memroy",)), r"no such case: memroy; did you mean memory\?"),
        (Options(only=("copies",)), "no such case on cpu: copies"),
        (Options(device="cuda:0", only=("matmull",)), r"no such case: matmull; did you mean matmul\?"),
    ],
)
def test_a_case_that_does_not_exist(options, said):
    with pytest.raises(GpudocError, match=said) as caught:
        check_options(options)
    names = caught.value.hint.removeprefix("--only ").split(",")
    assert "clock" in names
    assert len(names) == len(set(names))


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(GpudocError, match="not a folder"):
        check_options(Options(data=tmp_path / "none"))
    check_options(Options(data=tmp_path))


def test_a_run_that_cannot_be_compared_is_refused_before_it_begins():
    listener = Listener()
    old = Record(environment={"bench_version": 0}, measurements=())
    with pytest.raises(GpudocError, match=f"bench_version was 0, is {BENCH_VERSION}"):
        run(Options(only=("clock",), old=old), MACHINE, listener)
    assert listener.heard == []


def test_options_take_names_apart():
    assert Options.of("cpu", " memory, matmul,", True, None, None).only == ("memory", "matmul")


def test_a_soak_needs_a_duration_and_a_gpu():
    assert Options.of("cuda:0", "", False, None, None, "1m").soak_s == 60
    assert Options.of("cpu", "", False, None, None, "").soak_s == 0
    with pytest.raises(GpudocError, match="not a duration: 'long'"):
        Options.of("cuda:0", "", False, None, None, "long")
    with pytest.raises(GpudocError, match="--soak needs a GPU"):
        Options.of("cpu", "", False, None, None, "60s")


@pytest.mark.parametrize(
    "line", ["not json", "{}", '{"event": "reading", "values": {"name": 3}}', '{"event": "begin"}', "7"]
)
def test_a_line_that_is_not_understood_is_said_and_skipped(line):
    harvest = Harvest()
    assert _take(line, harvest) == ""
    assert "not understood" in harvest.not_measured[0].because


def test_a_case_that_every_process_skips_is_told_once_and_failures_all():
    harvest = Harvest()
    for seconds, failure in (("6.5", "out of memory"), ("6.8", "killed")):
        _take(json.dumps({"event": "absent", "case": "matmul", "because": f"would take {seconds} s"}), harvest)
        _take(json.dumps({"event": "failed", "case": "copy", "because": failure}), harvest)
    assert [one.because for one in harvest.reasons()] == ["would take 6.5 s", "out of memory", "killed"]


def test_what_torch_says_of_the_gpu_is_kept_and_missing_counters_are_said():
    harvest = Harvest()
    traits = '{"sm_count": 132, "l2_bytes": 1, "integrated": false, "pci_address": ""}'
    _take('{"event": "gpu", "values": ' + traits + "}", harvest)
    assert harvest.environment["sm_count"] == 132
    assert "were not read" in harvest.not_measured[0].because
    assert harvest.settled_readings() == []


def test_a_torch_that_tells_no_address_is_watched_at_the_one_that_the_driver_told(monkeypatch):
    opened = []
    monkeypatch.setattr(room, "open_telemetry", lambda address: opened.append(address) or Absent("no driver"))
    traits = '{"sm_count": 132, "l2_bytes": 1, "integrated": false, "pci_address": ""}'
    line = '{"event": "gpu", "values": ' + traits + "}"
    known = describe(make_plan("cuda:0", H100_MACHINE, quick=True, only=(), data=None), H100_MACHINE)
    harvest = Harvest(pci_address=known["pci_address"])
    _take(line, harvest)
    assert opened == [harvest.environment["pci_address"]] == ["0000:18:00.0"]


def test_a_bar_never_jumps_back_and_is_never_full_before_the_end():
    shares = [round(elapsed / expected_s(elapsed, 11.0), 6) for elapsed in range(1, 40)]
    assert shares == sorted(shares)
    assert max(shares) < 1
    assert expected_s(5.0, 11.0) == 11.0
