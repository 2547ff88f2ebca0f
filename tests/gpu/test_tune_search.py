"""The search for the batch on a real GPU: real limits, both certificates, nothing left on the card."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
import yaml

from gpudoc.progress import SILENT
from gpudoc.tune.search.foresight import foresee
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.largest import find_largest, settle_largest
from gpudoc.tune.search.runner import FIT_STEPS, WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import End, TrialRequest, Variant
from gpudoc.units import GIB, MIB
from tests.standin.gpus import real_gpu
from tests.tune.planted import write_workload

# tests/standin/test_tune.py searches under limits that suit a CPU
pytestmark = [pytest.mark.gpu, real_gpu("a CPU would compute with gigabytes for minutes at each limit")]
ROOT = pathlib.Path(__file__).resolve().parents[2]
# four blocks that keep about 32 MiB a sample
NET = {"depth": 4, "spread": 4096}
SHARES = (0.05, 0.1, 0.2)
FULL = {End.OOM_DEVICE, End.OOM_WORKSPACE, End.ALLOCATOR_RETRY}


def free_bytes():
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(0)[0]


def share_bytes(share):
    return int(share * torch.cuda.get_device_properties(0).total_memory)


@pytest.fixture
def open_session(tmp_path):
    opened = []

    def start(limit_bytes, variant=Variant(), **changes):  # noqa: B008
        plant = {"net": NET, "data": {"count": 100_000}, **changes}
        launcher = Launcher(str(write_workload(tmp_path, **plant)))
        opened.append(launcher)
        return Session(
            runner=WorkloadRunner(
                launcher=launcher, where=Where(device="cuda:0", limit_bytes=limit_bytes, cap=100_000)
            ),
            journal=Journal(None),
            progress=SILENT,
            budget_s=1e6,
            share_s=1e6,
            variant=variant,
        )

    before = free_bytes()
    yield start
    for launcher in opened:
        launcher.close()
    assert [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE] == []
    # a driver frees a dead process's memory a moment after it is gone
    for _ in range(100):
        if free_bytes() > before - 64 * MIB:
            break
        time.sleep(0.1)
    assert free_bytes() > before - 64 * MIB


def fits(session, batch):
    request = TrialRequest(kind="fit", batches=(batch,), variant=session.variant, steps=FIT_STEPS)
    return session.runner.launcher.run(request, session.runner.where)


@pytest.mark.parametrize("allocator", ["default", "expandable"])
@pytest.mark.parametrize("share", SHARES)
def test_the_largest_batch_under_a_share_of_the_card_has_both_certificates(open_session, share, allocator):
    session = open_session(share_bytes(share), Variant(allocator=allocator))
    found = find_largest(session, limit_bytes=session.runner.limit_bytes, cap=100_000)
    assert found.is_proved
    assert found.fails_with in FULL
    assert found.fails_at - found.batch <= max(1, found.line.gap(found.fails_at))
    assert fits(session, found.batch).fits
    assert fits(session, found.fails_at).end in FULL
    assert found.launches <= 8


def test_the_limit_is_real_although_the_card_has_more(open_session):
    session = open_session(2 * GIB)
    assert free_bytes() > 4 * GIB
    failed = fits(session, 200)
    assert failed.end in FULL
    assert failed.stage == "train"
    small = fits(session, 4)
    assert small.fits
    assert 0 < small.points[-1].peak_bytes <= 2 * GIB


def test_the_whole_script_runs_at_what_was_found_and_so_do_the_steps_that_follow(open_session):
    session = open_session(share_bytes(0.05))
    found = find_largest(session, limit_bytes=session.runner.limit_bytes, cap=100_000)
    settled = settle_largest(session, found, steps=50)
    assert settled.settled
    assert settled.batch >= 0.97 * found.batch


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_plan_foresees_the_largest_batch_and_saves_the_calibration(open_session, precision):
    limit = share_bytes(0.1)
    session = open_session(limit, Variant(precision=precision))
    line = foresee(session, cap=100_000, capability=torch.cuda.get_device_capability(0))
    without = find_largest(session, limit_bytes=limit, cap=100_000)
    session.release()
    assert line.largest(limit) == pytest.approx(without.batch, rel=0.1)
    again = open_session(limit, Variant(precision=precision))
    with_plan = find_largest(again, limit_bytes=limit, cap=100_000, expected=line)
    again.release()
    assert with_plan.is_proved
    assert abs(with_plan.batch - without.batch) <= max(1, without.line.gap(without.batch))
    # one launch more at worst: the first probe failed, and the calibration ran after all
    assert with_plan.launches <= without.launches + 1


def test_activation_checkpointing_lets_more_fit(open_session):
    limit = 2 * GIB
    plain = open_session(limit)
    without = find_largest(plain, limit_bytes=limit, cap=100_000).batch
    plain.release()
    recomputed = open_session(limit, Variant(activation_checkpointing=True))
    assert find_largest(recomputed, limit_bytes=limit, cap=100_000).batch > 1.5 * without
    recomputed.release()


@pytest.mark.parametrize("fused", [True, False])
def test_the_optimizer_runs_with_and_without_its_fused_kernel(open_session, fused):
    session = open_session(4 * GIB, Variant(fused=fused))
    request = TrialRequest(kind="variant", batches=(8,), variant=session.variant, seconds_per_batch=0.5)
    trial = session.run(request)
    assert trial.fits
    assert trial.points[-1].samples_per_s > 0


def test_a_fault_on_the_card_is_told_apart_and_the_next_trial_runs(open_session):
    faults = {"16": "sigkill", "17": "segfault", "18": "raise"}
    session = open_session(4 * GIB, net={**NET, "faults": faults})
    ends = {batch: fits(session, batch).end for batch in (16, 17, 18)}
    assert ends == {16: End.SIGNAL, 17: End.SIGNAL, 18: End.USER_ERROR}
    assert fits(session, 4).fits


def start(folder, *arguments):
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "gpudoc", *arguments, "--model", "cfg.yaml", "--device", "cuda"]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


TUNE = ("tune", "--only", "batch,speed", "--memory-limit", "4GiB", "--out", "profile.yaml")


def test_the_command_writes_a_profile_that_training_runs_without_a_rescue(tmp_path):
    write_workload(tmp_path, net=NET, data={"count": 20_000})
    search = start(tmp_path, *TUNE, "--goal", "largest", "--budget", "120s")
    _, err = search.communicate(timeout=400)
    assert search.returncode == 0, err
    profile = yaml.safe_load((tmp_path / "profile.yaml").read_text())
    assert profile["hardware"]["device"] == "cuda"
    assert profile["evidence"]["largest_batch"] == profile["settings"]["micro_batch"]
    arguments = ("train", "--profile", "profile.yaml", "--steps", "200", "--run-dir", "run", "--memory-limit", "4GiB")
    training = start(tmp_path, *arguments, "--no-preflight")
    _, err = training.communicate(timeout=500)
    assert training.returncode == 0, err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rescues"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_search_that_is_ended_leaves_nothing_on_the_card(tmp_path, number):
    write_workload(tmp_path, net=NET, data={"count": 20_000})
    before = free_bytes()
    search = start(tmp_path, *TUNE, "--budget", "200s")
    for line in search.stderr:
        if "trying batch" in line or "calibrating" in line:
            break
    children = psutil.Process(search.pid).children(recursive=True)
    search.send_signal(number)
    search.communicate(timeout=60)
    assert search.returncode in (130, -signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    for _ in range(100):
        if free_bytes() > before - 64 * MIB:
            break
        time.sleep(0.1)
    assert free_bytes() > before - 64 * MIB
