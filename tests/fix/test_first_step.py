"""A script that runs out of memory in its first step: what it would need, and what lets it live."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpudoc.facts.model import Absent
from gpudoc.fix import first_step
from gpudoc.fix import run as run_module
from gpudoc.fix.first_step import FirstStep, describe_death, judge_first_step, room_beyond
from gpudoc.fix.launches import GIVES_BACK
from gpudoc.fix.model import Candidate, Claim, HotLine, RunEvidence
from gpudoc.fix.options import FixOptions
from gpudoc.fix.proof import FixProof, describe
from gpudoc.process.shortage import Shortage
from gpudoc.progress import SILENT
from gpudoc.tune.trial.deadline import Deadline
from tests.fix.test_proof import run
from tests.fix.test_run import fixed
from tests.script.test_advice import look

GIB = 1 << 30
CANDIDATE = Candidate("activation-checkpointing", Path("train.py"), 4, Claim.EXACT, "a\n", "b\n")
PROOF = FixProof(candidate=CANDIDATE, claim=Claim.EXACT, why="", steps=12, launches=4)
FIRST = FirstStep(RunEvidence(hot=(), died_at=HotLine(Path("train.py"), 37, 0.0)), 0, GIB, 4 * GIB)


@pytest.mark.parametrize(
    ("limit", "free", "room"),
    [(GIB, 10 * GIB, 7 * GIB), (8 * GIB, 10 * GIB, None), (None, 10 * GIB, None), (GIB, Absent("no /proc"), None)],
)
def test_a_launch_without_the_limit_takes_a_part_of_what_is_free_or_is_not_made(monkeypatch, limit, free, room):
    monkeypatch.setattr(first_step, "memory_free_bytes", lambda: free)
    assert room_beyond(limit) == (None if room is None else pytest.approx(room, rel=1e-6))


def test_where_it_died_and_what_its_steps_take_is_said():
    assert describe_death(FIRST, replace(look(), peak_bytes=2 * GIB)) == (
        "under 1 GiB it runs out of memory at train.py:37 in its first step; without the limit its steps take at least "
        "2 GiB"
    )
    assert "after 2 steps" in describe_death(replace(FIRST, steps=2), replace(look(), peak_bytes=None))


def test_a_changed_script_lives_where_it_ran_three_times_as_far():
    assert judge_first_step(PROOF, FIRST, 3).lives
    short = judge_first_step(PROOF, replace(FIRST, steps=2), 5)
    assert (short.lives, short.claim) == (False, None)
    assert not judge_first_step(replace(PROOF, claim=Claim.CHANGES), FIRST, 30).lives


def test_the_proof_says_that_the_script_as_it_is_ran_without_the_limit():
    lives = judge_first_step(replace(PROOF, peak_before=4 * GIB, peak_after=GIB), FIRST, 12)
    assert describe(lives) == (
        "it no longer runs out of memory; peak memory 1 GiB, 4 GiB without the limit; losses, batches, parameters, "
        "optimizer and random numbers are bit-identical over 12 steps (4 launches)"
    )


def proved(monkeypatch, played):
    """The proof of a change of which each launch is as `played` says by its environment and limit."""
    launches = SimpleNamespace(limited=False)

    def limited_to(_bytes):
        launches.limited = not launches.limited
        return nullcontext()

    launches.limited_to = limited_to
    fixer = run_module._Fixer(FixOptions(command=("python", "train.py")), launches, SILENT, Deadline(), frozenset())
    monkeypatch.setattr(
        run_module._Fixer,
        "_recorded",
        lambda _fixer, _look, _steps, files=None, environment=None, rounding=None: played(files, environment or {}),
    )
    return fixer._prove_first_step(CANDIDATE, look(), FIRST)


def test_a_change_that_lives_only_where_freed_memory_is_given_back_comes_with_the_variable_for_that(monkeypatch):
    def played(files, environment):
        return run() if not files or environment == GIVES_BACK else run(record=None, shortage=Shortage.HOST)

    found = proved(monkeypatch, played)
    assert (found.lives, dict(found.candidate.environment)) == (True, GIVES_BACK)


def test_a_change_that_lives_without_it_comes_without_it(monkeypatch):
    found = proved(monkeypatch, lambda files, environment: run())
    assert (found.lives, found.candidate.environment) == (True, ())


def test_a_change_that_dies_all_the_same_is_none(monkeypatch):
    found = proved(monkeypatch, lambda files, environment: run(shortage=Shortage.HOST) if files else run())
    assert (found.lives, found.is_gain) == (False, False)


@pytest.mark.slow
def test_a_script_that_dies_in_its_first_step_lives_under_the_same_limit(tmp_path, monkeypatch):
    found = fixed(tmp_path, monkeypatch, "deep", "24", "65536", budget="10m", memory_limit="800MiB")
    assert [proof.candidate.rewrite for proof in found.accepted] == ["activation-checkpointing"]
    proof = found.accepted[0]
    assert (proof.claim, proof.lives, proof.without_limit) == (Claim.EXACT, True, True)
    assert proof.peak_after < 800 << 20 < proof.peak_before
    assert "it runs out of memory at deep.py:" in found.notes[0]
