"""What several attempts of one job have in common, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoc.doctor.ranks import rank_rows, read_job
from gpudoc.facts.readers.job_failure import judge_job
from gpudoc.facts.readers.job_files import identify

RANKS = 16


def attempt(began: int, minutes: float, step: int, rank: int, error: str, nodes: tuple[str, str]) -> str:
    """One attempt of 16 ranks on two nodes: its ranks name their host, one fails, the others lose it."""
    lines = [f"{r}: {nodes[r // 8]}:812:900 [{r % 8}] NCCL INFO comm ready" for r in range(RANKS)]
    lines += [f"{r}: 2026-11-25 {began:02d}:00:00 INFO step 1" for r in range(RANKS)]
    lines += [f"{r}: 2026-11-25 {began:02d}:{int(minutes):02d}:00 INFO step {step}" for r in range(RANKS)]
    lines += [f"{rank}: Traceback (most recent call last):", f"{rank}: {error}"]
    lines += [f"{r}: RuntimeError: Connection closed by peer [10.0.0.7]:4711" for r in range(RANKS) if r != rank]
    return "\n".join(lines) + "\n"


ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
KEY = "KeyError: 'label'"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
A, B, C = ("node01", "node02"), ("node03", "node02"), ("node04", "node05")


@pytest.mark.parametrize(
    ("attempts", "following", "says"),
    [
        ((attempt(1, 20, 400, 9, ECC, A), attempt(3, 45, 900, 9, ECC, B)), "drain", "rank 9 on node02: the hardware"),
        ((attempt(1, 20, 400, 9, ECC, A), attempt(3, 45, 900, 11, ECC, B)), "drain", "on node02, in different ranks"),
        ((attempt(1, 20, 400, 9, KEY, A), attempt(3, 45, 400, 3, KEY, C)), "stop", "at step 400: the data"),
        ((attempt(1, 20, 400, 9, KEY, A), attempt(3, 45, 400, 9, KEY, B)), "stop", "at step 400: the data"),
        ((attempt(1, 30, 400, 9, MEMORY, A), attempt(3, 30, 700, 3, MEMORY, C)), "stop", "memory grows with time"),
        ((attempt(1, 30, 400, 9, ECC, A), attempt(3, 30, 700, 3, KEY, C)), "restart", "about 30 minutes: a time limit"),
        ((attempt(1, 20, 400, 9, KEY, A), attempt(3, 45, 900, 3, KEY, C)), "stop", "same error: "),
        ((attempt(1, 20, 400, 9, ECC, A), attempt(3, 45, 900, 3, KEY, C)), "restart", "neither a node"),
    ],
)
def test_what_attempts_have_in_common(attempts, following, says, tmp_path):
    for number, text in enumerate(attempts):
        (tmp_path / f"slurm-{4711 + number}.out").write_text(text)
    job = read_job(identify(sorted(tmp_path.iterdir())))
    assert job is not None
    failure = judge_job(job, rank_rows())
    assert failure is not None
    assert len(failure.attempts) == 2
    assert failure.next == following
    assert says in failure.again
    assert bool(failure.run) is (following == "drain")


def test_one_attempt_repeats_nothing(tmp_path):
    (tmp_path / "slurm-4711.out").write_text(attempt(1, 20, 400, 9, ECC, A))
    job = read_job(identify([Path(tmp_path, "slurm-4711.out")]))
    assert job is not None
    failure = judge_job(job, rank_rows())
    assert failure is not None
    assert (failure.again, failure.next, failure.do) == ("", "", "")


def test_attempts_in_one_file_are_parted_by_the_words_of_a_requeue(tmp_path):
    text = attempt(1, 20, 400, 9, ECC, A) + "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED DUE TO REQUEUE ***\n"
    (tmp_path / "slurm-4711.out").write_text(text + attempt(3, 45, 900, 9, ECC, B))
    job = read_job(identify([Path(tmp_path, "slurm-4711.out")]))
    assert job is not None
    assert len(job.attempts) == 2
