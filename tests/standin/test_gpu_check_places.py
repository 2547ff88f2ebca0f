"""gpu-check's steps of some places, rehearsed: several GPUs, MIG, SLURM, a driver that spills; green, then red."""

from __future__ import annotations

import os

import pytest

from tests.standin.gpus import ROOT
from tests.standin.test_gpu_check import rehearse, sentences

pytestmark = pytest.mark.standin

__all__ = ["rehearse"]
ONE = ("--minutes", "60", "--only")
# a CPU that does much else computes for a step of 90 s on a card
LONG = ("--minutes", "300", "--only")
# read by every process as it starts
START = "sitecustomize.py"
# what a CPU can compute of `bench --across` in a minute
SHORT = """
from gpudoc.fleet import conductor, hand, meeting, stages
conductor._SLACK_S = hand.START_S = 1200.0
meeting.SILENCE_S = 300.0
times = stages.Times(alone=0.1, together=0.1, steps=0.1, digests=0.1, sweep=0.5, pair=0.1, host=0.1)
stages.QUICK = stages.FULL = times
stages.DIGEST_SIZE = 256
stages.Scheme.wants = lambda self, name: name in ("steps", "digests", "collectives")
"""
# the child that reads facts has no such start, so what it found is changed
WSL = """
from dataclasses import replace
from gpudoc import facts
from gpudoc.facts import host
host.is_wsl = lambda root=None: True
read = facts.collect
def collect(*given, **named):
    machine = read(*given, **named)
    return replace(machine, host=replace(machine.host, wsl=True))
facts.collect = collect
"""
NO_LIMIT = """
from gpudoc.train import limits
limits.enforce = lambda limit_bytes, device: None
"""
# a task of one node that is given GPU 1 of two; what it gives stands under one name
SRUN = """#!/bin/sh
while case "$1" in --*) true;; *) false;; esac; do shift; done
export CUDA_VISIBLE_DEVICES={given} SLURM_STEP_ID=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1
export SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 SLURM_GPUS_ON_NODE=2 SLURM_STEP_GPUS=1
exec "$@"
"""


def places(folder):
    """The environment in which Python finds `START` of this folder first."""
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


FAST = {"clock": "virtual", "tflops": 120, "gbps": 800, "pcie_gbps": 12, "memory": "16G"}


def test_methods_of_others_agree_with_bench(rehearse):
    status, record, said = rehearse(*ONE, "methods of others", **FAST)
    assert status == 0, said
    names = [one.name for one in record.outcomes[0].comparisons if one.guessed is not None]
    assert len(names) == 6
    assert "h2d beside nvbandwidth's method" in names


def test_products_beyond_the_ceiling_are_named_with_what_bench_says_of_them(rehearse):
    status, record, _ = rehearse(*ONE, "methods of others", **{**FAST, "tflops": 3000})
    assert status == 1
    (said,) = sentences(record, "methods of others")
    assert said.startswith("bench has no figure for matmul bf16 sustained: ")
    assert "of the ceiling" in said


FAULTS = {"memory": "1G", "context_bytes": "450M", "math_ops": "1e11"}


def test_trainings_that_run_out_or_are_killed_go_on(rehearse):
    status, record, said = rehearse(*LONG, "faults", **FAULTS)
    assert status == 0, said
    assert record.outcomes[0].facts["rescues"] >= 1


def test_a_driver_that_spills_has_no_lack_of_memory_to_rescue(rehearse):
    status, record, _ = rehearse(*LONG, "faults", spill=1, **FAULTS)
    assert status == 1
    (said,) = sentences(record, "faults")
    assert said.endswith("four times what the card has room for, ran without a lack of memory")


# so slow that a step takes its modelled time, also on a busy machine
SEVERAL = {"gpus": 4, "memory": "2560M", "clock": "virtual", "gbps": 0.15, "tflops": 600, "math_ops": "1e11"}


def test_all_gpus_that_are_equal_get_a_verdict(rehearse, tmp_path):
    (tmp_path / START).write_text(SHORT)
    status, record, said = rehearse(*ONE, "all GPUs", **SEVERAL, variables=places(tmp_path))
    assert status == 0, said
    assert record.outcomes[0].facts["verdict"] == "healthy"


def test_of_all_gpus_the_one_that_computes_wrongly_is_named(rehearse, tmp_path):
    (tmp_path / START).write_text(SHORT)
    status, record, _ = rehearse(*ONE, "all GPUs", **SEVERAL, corrupt_gpu=2, variables=places(tmp_path))
    assert status == 1
    assert sentences(record, "all GPUs") == ["GPU 2 of node 0 computes wrong results without an error"]


def test_a_mig_instance_trains(rehearse):
    status, record, said = rehearse(*ONE, "a MIG instance", mig=2, math_ops="1e11")
    assert status == 0, said
    assert [one.state for one in record.outcomes] == ["passed"]


def test_a_mig_instance_that_fails_is_named_with_its_error(rehearse):
    status, record, _ = rehearse(*ONE, "a MIG instance", mig=2, math_ops="1e11", fault="ecc", fault_after=200)
    assert status == 1
    said = sentences(record, "a MIG instance")[0]
    assert said.startswith("exit status ")
    assert "uncorrectable ECC error" in said


def test_the_batch_of_a_card_that_shares_its_memory_is_proved_under_tunes_limit(rehearse):
    status, record, said = rehearse("--quick", *ONE, "memory", integrated=1)
    assert status == 0, said
    assert [one.state for one in record.outcomes] == ["passed"]


def slurm(folder, given):
    played = folder / "bin"
    played.mkdir()
    (played / "srun").write_text(SRUN.format(given=given))
    (played / "srun").chmod(0o755)
    return {"PATH": os.pathsep.join([str(played), os.environ["PATH"]]), "SLURM_JOB_ID": "7"}


def test_a_slurm_task_trains_on_the_gpu_that_it_is_given(rehearse, tmp_path):
    status, record, said = rehearse(*ONE, "a SLURM task", gpus=2, math_ops="1e11", variables=slurm(tmp_path, "1"))
    assert status == 0, said
    assert [one.state for one in record.outcomes] == ["passed"]


def test_a_slurm_task_without_a_gpu_is_red(rehearse, tmp_path):
    status, record, _ = rehearse(*ONE, "a SLURM task", gpus=2, math_ops="1e11", variables=slurm(tmp_path, ""))
    assert status == 1
    (said,) = sentences(record, "a SLURM task")
    assert said.startswith("exit status 1: gpudoc: the GPU cannot be used: ")


def test_under_windows_driver_a_training_ends_at_the_cards_edge(rehearse, tmp_path):
    (tmp_path / START).write_text(WSL)
    status, record, said = rehearse(*ONE, "spill", spill=1, variables=places(tmp_path))
    assert status == 0, said
    assert [one.state for one in record.outcomes] == ["passed"]


def test_a_training_without_its_limit_is_found_where_the_driver_spills(rehearse, tmp_path):
    (tmp_path / START).write_text(WSL + NO_LIMIT)
    status, record, _ = rehearse(*ONE, "spill", spill=1, variables=places(tmp_path))
    assert status == 1
    said = sentences(record, "spill")
    assert said == ["a training takes more memory than the card has, and the driver lets it"]
