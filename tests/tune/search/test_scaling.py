"""Which ranks are measured and in which order, from a machine that is a formula; and the whole command for real."""

import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
import yaml

from gpudoc.cli import app
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.host import cpus_usable
from gpudoc.profile import store
from gpudoc.profile.model import Hardware, Loader, Made, Profile, WorkloadKey
from gpudoc.profile.model import Settings as ProfileSettings
from gpudoc.render.tune import as_text
from gpudoc.tune.search import scaling
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.scaling import (
    ScalingResult,
    ScalingSettings,
    ScalingStage,
    counts_up_to,
    limited_for,
    most_ranks,
    tuned_settings,
)
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.launcher import Where
from gpudoc.tune.trial.messages import End, Trial
from gpudoc.tune.trial.wire import Inspection
from gpudoc.workload.config import Train, load_config
from tests.tune.planted import write_workload

TOLD = Inspection(
    num_samples=10_000,
    num_threads=8,
    baseline_bytes=1 << 20,
    parameter_bytes=4 << 20,
    workload=WorkloadKey(config="cfg", model="abc"),
    hardware=Hardware(device="cpu"),
    torch="2.13.0",
    can_recompute=False,
    can_fuse=False,
    has_images=False,
    has_bf16=False,
)


class Machine:
    """Answers every request from a formula; the third trial may be interrupted, two ranks may not fit."""

    def __init__(self, interrupt_at=None, too_much=()):
        self.asked, self.said, self.interrupt_at, self.too_much = [], [], interrupt_at, too_much
        self.seconds = []

    def run(self, request, where):
        self.asked.append((request.ranks, request.threads))
        self.seconds.append(request.seconds_per_batch)
        if len(self.asked) == self.interrupt_at:
            raise KeyboardInterrupt
        if request.ranks in self.too_much:
            return Trial(request=request, end=End.OOM_HOST, detail="planted", seconds=1.0)
        step = 0.1 if request.ranks == 1 else 0.1 + 0.01 * request.ranks
        legs = {"computed": (0.1,) * 6, "exchanged": (step,) * 6, "loaded": (step,) * 6}
        return Trial(request=request, end=End.FITS, legs=legs, seconds=1.0)

    def say(self, text):
        self.said.append(text)

    def advance(self, done, total, text):
        pass


def session(machine, device="cpu", journal=None, budget_s=100.0):
    where = Where(device=device, limit_bytes=1 << 30)
    return Session(
        runner=WorkloadRunner(launcher=machine, where=where),
        journal=journal or Journal(None),
        progress=machine,
        budget_s=budget_s,
    )


def measured(machine, counts=(1, 2, 4), **changes):
    asked = session(machine, **changes)
    stage = ScalingStage(asked, ScalingSettings(batch=16), counts, TOLD, budget_s=asked.budget_s)
    stage.run()
    return stage.result("cfg.yaml")


def test_on_a_cpu_each_number_of_ranks_is_compared_with_one_rank_of_as_many_threads():
    machine = Machine()
    scaling = measured(machine)
    assert machine.asked == [(1, None), (1, 4.0), (2, None), (1, 2.0), (4, None)]
    assert [(p.ranks, p.threads) for p in scaling.points] == [(1, 8), (2, 4), (4, 2)]
    assert [p.efficiency and round(p.efficiency.middle, 3) for p in scaling.points] == [None, 0.833, 0.714]
    assert scaling.points[-1].speedup == pytest.approx(4 * 0.1 / 0.14)
    assert scaling.gradient_bytes == 4 << 20


def test_on_gpus_one_gpu_is_what_all_are_compared_with():
    machine = Machine()
    scaling = measured(machine, device="cuda:0")
    assert machine.asked == [(1, None), (2, None), (4, None)]
    assert scaling.verdict.startswith("4 GPUs train at 2.86 times the speed of one, 71% efficiency")


def test_what_others_disturbed_is_said_with_the_answer():
    class Busy(Machine):
        def run(self, request, where):
            return super().run(request, where).model_copy(update={"measured": {"other_cpus": 1.0, "busy_share": 1.0}})

    (doubt,) = measured(Busy(), counts=(1, 2)).notes
    assert doubt.startswith("! other processes kept up to 1.0 CPUs busy during 3 of 3 timings, so the speeds")


def test_what_the_journal_has_is_not_run_again(tmp_path):
    journal = Journal(None)
    first = measured(Machine(), journal=journal)
    again = Machine()
    assert measured(again, journal=journal).document() == first.document()
    assert again.asked == []


def test_the_budget_ends_the_measurement_and_says_what_is_missing():
    scaling = measured(Machine(), counts=(1, 2, 4, 8), budget_s=1.5)
    assert [p.ranks for p in scaling.points] == [1, 2]
    assert scaling.notes == ("4, 8 ranks were not measured: the budget is used up",)


def seconds_of(budget_s, counts=(1, 2, 4)):
    machine = Machine()
    measured(machine, counts=counts, budget_s=budget_s)
    # all trials of a search measure for as long
    (seconds,) = set(machine.seconds)
    return seconds


def test_the_time_of_a_trial_follows_from_the_whole_budget_and_the_number_of_trials():
    assert seconds_of(100.0) == pytest.approx(2 * seconds_of(50.0))
    assert seconds_of(50.0, counts=(1, 2)) == pytest.approx(seconds_of(50.0) * 5 / 3)
    assert 0 < seconds_of(3.0) == seconds_of(6.0), "a figure needs some time, however little there is"
    assert seconds_of(1e5) == seconds_of(2e5), "more tells nothing more"


def test_an_interrupt_leaves_what_was_measured():
    stage = ScalingStage(session(Machine(interrupt_at=5)), ScalingSettings(batch=16), (1, 2, 4), TOLD, budget_s=100.0)
    with pytest.raises(KeyboardInterrupt):
        stage.run()
    result = ScalingResult(
        scaling=stage.result("m"), config=load_config("quickstart"), num_trials=4, seconds=1.0, interrupted=True
    )
    assert [p.ranks for p in result.scaling.points] == [1, 2]
    assert result.exit_code is ExitCode.INTERRUPTED
    assert as_text(result).startswith("interrupted; the results so far: 4 trials in 1 s, no profile written")


def test_ranks_that_do_not_fit_are_said_and_the_answer_is_bad():
    scaling = measured(Machine(too_much=(2,)), counts=(1, 2))
    assert scaling.points[1].end is End.OOM_HOST
    result = ScalingResult(scaling=scaling, config=load_config("quickstart"), num_trials=3, seconds=1.0)
    assert result.exit_code is ExitCode.BAD_ANSWER


def test_the_numbers_of_ranks():
    assert [counts_up_to(n) for n in (2, 6, 8)] == [(1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("asked", "chosen", "where", "says"),
    [
        (None, 1, {"on_gpu": True, "one_gpu": False, "num_gpus": 1}, "one GPU that torch can use"),
        (None, 1, {"on_gpu": True, "one_gpu": True, "num_gpus": 4}, "names one GPU"),
        ("1", 1, {"on_gpu": True, "one_gpu": False, "num_gpus": 4}, "contradict each other"),
        ("1", 1, {"on_gpu": False, "one_gpu": False, "num_gpus": 0}, "contradict each other"),
    ],
)
def test_one_rank_is_told_that_it_has_nothing_to_scale_to(asked, chosen, where, says):
    with pytest.raises(GpudocError, match=says) as raised:
        most_ranks(asked, chosen, **where)
    assert raised.value.exit_code == 2


def test_a_machine_with_one_cpu_says_how_to_measure_two_ranks_anyway(monkeypatch):
    monkeypatch.setattr(scaling, "cpus_usable", lambda: 1.0)
    with pytest.raises(GpudocError, match="one CPU, so there is nothing to scale to") as problem:
        most_ranks(None, 1, on_gpu=False, one_gpu=False, num_gpus=0)
    assert "--gpus 2" in problem.value.hint


def test_the_most_ranks_are_the_gpus_or_what_was_asked_or_the_cpus():
    assert most_ranks(None, 8, on_gpu=True, one_gpu=False, num_gpus=8) == 8
    assert most_ranks("3", 3, on_gpu=False, one_gpu=False, num_gpus=0) == 3
    if cpus_usable() >= 2:
        assert most_ranks(None, 1, on_gpu=False, one_gpu=False, num_gpus=0) == min(8, int(cpus_usable()))


def test_ranks_share_the_hosts_memory_unless_a_limit_was_asked_for():
    assert limited_for(session(Machine()), 4, 1 << 32, None).runner.limit_bytes == 1 << 29
    assert limited_for(session(Machine()), 4, 1 << 32, 1 << 30).runner.limit_bytes == 1 << 30
    assert limited_for(session(Machine(), device="cuda:0"), 4, 1 << 32, None).runner.limit_bytes == 1 << 30


def test_the_settings_are_those_of_a_profile_that_fits(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    hardware = Hardware(device="cpu", name="a CPU", torch="2.13.0", memory_bytes=1 << 33)
    key = WorkloadKey(config="cfg", model="abc")

    def settings(cap=1000):
        return tuned_settings(hardware, key, (1, 2), Train(), cap)

    assert (settings().batch, settings().tuned) == (32, False)
    assert "no profile fits" in settings().told
    for count, batch in ((1, 64), (2, 48)):
        profile = Profile(
            made=Made(at="2026-01-01T00:00:00+00:00", gpudoc="0.1.0", seconds=1.0, trials=1),
            hardware=hardware.model_copy(update={"count": count}),
            workload=key,
            settings=ProfileSettings(precision="bf16", micro_batch=batch, loader=Loader(num_workers=2)),
        )
        store.save(profile, store.folder_to_write() / store.file_name(profile))
        found = settings()
        assert (found.batch, found.variant.precision, found.feed, found.tuned) == (
            batch, "bf16", Loader(num_workers=2), True,
        )  # fmt: skip
    assert settings(cap=40).batch == 40


def start(folder, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "XDG_DATA_HOME": str(folder / "data")}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), environment.get("PYTHONPATH", "")])  # noqa: PTH109
    command = [sys.executable, "-m", "tests.tune.quiet", "tune", "--model", "cfg.yaml", "--device", "cpu"]
    command += ["--gpus", "2", "--only", "scaling", "--budget", "45s", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment)


def finish(process, code=0):
    out, err = process.communicate(timeout=280)
    assert process.returncode == code, err
    return out, err


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaled")
    # every sample takes 3 ms, a rank reads 8 of them before each step: two ranks wait as long as one
    write_workload(folder, data={"sleep": 0.003})
    out, err = finish(start(folder, "--json", "--html", "page.html"))
    return folder, json.loads(out), err


def test_one_and_two_ranks_are_measured_and_compared(scaled):
    folder, document, err = scaled
    assert (document["schema"], document["profile"]) == ("gpudoc.tune.v1", None)
    scaling = document["scaling"]
    assert scaling["micro_batch"] == 8
    one, two = scaling["points"]
    assert (one["ranks"], one["threads_per_rank"], two["ranks"], two["threads_per_rank"]) == (1, 2, 2, 1)
    assert one["end"] == two["end"] == "fits"
    assert two["samples_per_s"] > 0
    assert two["efficiency"] is not None
    assert set(two["lost"]) == {"loader", "communication", "contention"}
    total = sum(lost["middle"] for lost in two["lost"].values())
    assert total == pytest.approx(1 - two["efficiency"], abs=2e-4)
    # 8 samples of 3 ms cannot come faster, whatever else the machine does
    assert one["samples_per_s"] < 8 / 0.024
    assert "no profile fits" in err
    assert "the search imported torch" not in err
    assert not (folder / "data" / "gpudoc" / "profiles").exists()
    assert "Does it scale?" in (folder / "page.html").read_text()


@pytest.mark.slow
def test_after_a_kill_no_trial_is_repeated(tmp_path):
    write_workload(tmp_path, data={"sleep": 0.003})
    process = start(tmp_path, "--json")
    for line in process.stderr:
        if "2 ranks with" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    (path,) = (tmp_path / "data" / "gpudoc" / "journals").glob("*.jsonl")
    kept = path.read_text().splitlines(keepends=True)
    assert len(kept) > 1
    out, _ = finish(start(tmp_path, "--json"))
    again = path.read_text().splitlines(keepends=True)
    assert again[: len(kept)] == kept
    requests = [json.dumps(json.loads(line)["request"], sort_keys=True) for line in again[1:]]
    assert len(set(requests)) == len(requests)
    assert [(point["ranks"], point["end"]) for point in json.loads(out)["scaling"]["points"]] == [
        (1, "fits"),
        (2, "fits"),
    ]


@pytest.mark.slow
def test_ctrl_c_shows_what_was_measured(tmp_path):
    write_workload(tmp_path)
    process = start(tmp_path, "--budget", "45s")
    for line in process.stderr:
        if re.search(r"one rank alone with 1 thread", line):
            break
    process.send_signal(signal.SIGINT)
    out, _ = finish(process, code=130)
    assert "interrupted; the results so far" in out
    assert "nothing to compare: only one rank was measured" in out


@pytest.mark.slow
def test_a_rank_that_runs_out_of_memory_is_a_point_without_figures(tmp_path):
    write_workload(tmp_path, fault="rank 1", at=8)
    out, _ = finish(start(tmp_path), code=1)
    assert "2 ranks: oom_host" in out


@pytest.mark.slow
def test_the_batch_and_its_scaling_in_one_go(tmp_path):
    write_workload(tmp_path)
    process = start(tmp_path, "--only", "speed,scaling", "--budget", "60s", "--json", "--out", "profile.yaml")
    out, _ = finish(process)
    document = json.loads(out)
    assert [p["ranks"] for p in document["scaling"]["points"]] == [1, 2]
    profile = yaml.safe_load((tmp_path / "profile.yaml").read_text())
    assert document["scaling"]["micro_batch"] == profile["settings"]["micro_batch"]
    assert document["scaling"]["verdict"] in profile["why"]
    assert not any(row["kind"] == "scaling" for row in profile["evidence"]["trials"])


def test_a_profile_is_not_asked_of_a_measurement(tmp_path, monkeypatch, capfd):
    write_workload(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # neither needs a trial's process, which imports torch and the workload first
    monkeypatch.setattr("gpudoc.tune.run.Launcher", lambda *_: pytest.fail("a fork server was started"))
    line = ["tune", "--model", "cfg.yaml", "--device", "cpu", "--only", "scaling"]
    assert app.run([*line, "--gpus", "2", "--out", "profile.yaml"]) == 2
    assert "has no profile for --out" in capfd.readouterr().err
    assert app.run([*line, "--gpus", "1"]) == 2
    assert "a single rank cannot scale" in capfd.readouterr().err
