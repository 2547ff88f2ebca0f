"""gpu-check rehearsed over stand-in GPUs: green where all is as gpudoc guesses, else red at the right step."""

from __future__ import annotations

import sys

import pytest

from benchmarks.gpu_check.model import Record

pytestmark = pytest.mark.standin

# as gpudoc's tables have it of this capability
RIGHT = {"cc": "9.0", "context_bytes": "692M", "math_ops": "1e6", "memory": "3G"}
QUICK = ("--quick", "--minutes", "30")


@pytest.fixture
def rehearse(standin, tmp_path):
    """(exit status, record, what was said) of gpu-check beside GPUs of these settings; `variables` come on top."""

    def start(*arguments, variables=None, **settings):
        gpus = standin(**{**RIGHT, **settings})
        path = tmp_path / "record.json"
        command = (sys.executable, "-m", "benchmarks.gpu_check", "--record", str(path))
        done = gpus.run(*command, *arguments, **(variables or {}))
        assert path.exists(), done.stderr
        assert not gpus.holders()
        return done.returncode, Record.load(path), done.stdout

    return start


def sentences(record, step):
    return [said for one in record.outcomes if one.step == step for said in one.sentences]


def test_as_gpudoc_guesses_all_is_green(rehearse):
    status, record, said = rehearse(
        *QUICK, "--only", "doctor,machine,constants,timing,memory", clock="virtual", tflops=1.5
    )
    assert status == 0, said
    assert [one.state for one in record.outcomes] == ["passed"] * 5
    assert record.is_standin
    assert record.machine["driver"] == "580.82.07"
    assert record.machine["gpu0.persistence"] == "yes"
    compared = {one.name: one.ratio for outcome in record.outcomes for one in outcome.comparisons}
    assert compared["CUDA context"] == pytest.approx(1.0, abs=0.01)
    assert "CUDA context: 692 / 692 MiB / 1.000" in said
    assert '"schema": "gpudoc.doctor.v1"' in record.outcomes[0].output


def test_a_context_of_another_size_is_named_with_both_sizes(rehearse):
    status, record, _ = rehearse(*QUICK, "--only", "constants", context_bytes="900M")
    assert status == 1
    (said,) = sentences(record, "constants")
    assert said == "CUDA context: gpudoc expects 692 MiB, the card says 900 MiB (ratio 1.301, allowed 0.9 to 1.1)"


def test_an_allocator_that_takes_more_than_it_says_is_found(rehearse):
    status, record, _ = rehearse(*QUICK, "--only", "constants", takes=1.2)
    assert status == 1
    assert [said.split(":")[0] for said in sentences(record, "constants")] == [
        "what the card takes for the blocks that PyTorch reserves",
        "what CUDA says is no longer free after them",
    ]


def test_clocks_that_are_lowered_are_found_and_the_reason_named(rehearse):
    status, record, _ = rehearse(*QUICK, "--only", "machine", sm_mhz=990, hot=1, clock="virtual")
    assert status == 1
    (said,) = sentences(record, "machine")
    assert said.startswith("clock under light load (slowed by: sw_thermal")
    assert "gpudoc expects 1980 MHz, the card says 990 MHz" in said


def test_ranks_that_hang_are_ended_and_leave_nothing(rehearse):
    # the ranks get a tenth of their 180 s
    status, record, _ = rehearse("--minutes", "2.5", "--only", "ranks", gpus=2, hang_after=0)
    assert status == 1
    (outcome,) = record.outcomes
    assert outcome.state == "cut"
    assert outcome.sentences[0].startswith("ranks did not end within 18 s, and its processes were ended")


def test_a_gpu_that_is_lost_in_a_step_is_named_and_no_step_waits_for_it(rehearse):
    status, record, _ = rehearse(*QUICK, "--only", "constants,timing", fault="lost", fault_after=100)
    assert status == 1
    assert [one.state for one in record.outcomes] == ["failed", "left out"]
    (said,) = sentences(record, "timing")
    assert said.startswith("the GPU has not computed since constants: ")
    assert "CUDA" in said


def test_without_a_gpu_doctor_says_why_and_the_record_says_that_nothing_else_ran(rehearse):
    status, record, said = rehearse(*QUICK, gpus=0)
    assert status == 1
    ran = [one.step for one in record.outcomes if one.state != "left out"]
    assert ran == ["doctor", "doctor again"]
    assert "the driver shows no GPU here; doctor says why" in said
