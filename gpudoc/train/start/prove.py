"""--prove-resume: run, kill -9, resume on the user's own workload, and compare every bit of state and every sample."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.arguments import own_module, without
from gpudoc.process.ending import end_family
from gpudoc.progress import SILENT, Progress
from gpudoc.temporary import TemporaryFolder
from gpudoc.train.start.identity import digest
from gpudoc.train.state import checkpoint
from gpudoc.train.state.restore import load

SCHEMA = "gpudoc.prove.v1"
STEPS = 12
KILL_AFTER = 5
_DEADLINE_S = 1800.0
# the options that a proof sets itself, and those of its output
_SET_HERE = ("--steps", "--epochs", "--run-dir", "--resume", "--html", "--trace", "--log-to")
_SAID_HERE = ("--prove-resume", "--json", "--plain", "--verbose", "-v")
# the state that may differ between two equal runs: clocks
_NOT_STATE = ("seconds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the resumed run equals the uninterrupted one, and their differences if not."""

    exact: bool
    differences: tuple[str, ...]
    repeatable: bool
    killed_at: int
    steps: int

    def document(self) -> dict[str, object]:
        """The verdict as plain data."""
        return {
            "schema": SCHEMA,
            "exact": self.exact,
            "repeatable": self.repeatable,
            "differences": list(self.differences),
            "killed_after_step": self.killed_at,
            "steps": self.steps,
        }


def prove(arguments: Sequence[str], progress: Progress = SILENT) -> Verdict:
    """Prove or refute exact resume for the command line `arguments` of train; GpudocError if a run fails by itself.

    Three runs, each in a separate process: one whole; one killed with SIGKILL and resumed; and, only if these differ,
    a second whole one, which distinguishes non-deterministic kernels from state that is not in the checkpoint.
    """
    with TemporaryFolder("prove") as home:
        given = without(arguments, *_SET_HERE, flags=_SAID_HERE)
        line = [*given, "--set", "log_every=1", "--set", "eval_every=1000000", "--steps", str(STEPS)]
        progress.say(f"1/3 {STEPS} steps without interruption")
        _run([*line, "--run-dir", str(home / "whole")])
        progress.say(f"2/3 the same, killed with SIGKILL after step {KILL_AFTER}, then resumed")
        broken = [*line, "--run-dir", str(home / "broken"), "--set", f"checkpoint_every={KILL_AFTER}"]
        _run_and_kill([*broken, "--set", "keep=99"], home / "broken")
        _run([*broken, "--set", "keep=99"])
        differences = tuple(_differences(home / "whole", home / "broken"))
        repeatable = True
        if differences:
            progress.say("3/3 they differ; running all steps once more, to see whether the run repeats itself at all")
            _run([*line, "--run-dir", str(home / "again")])
            repeatable = not list(_differences(home / "whole", home / "again"))
        return Verdict(
            exact=not differences,
            differences=differences,
            repeatable=repeatable,
            killed_at=KILL_AFTER,
            steps=STEPS,
        )


def explain(verdict: Verdict) -> str:
    """The verdict in words, with the reason and a remedy."""
    if verdict.exact:
        return (
            f"exact: killed after step {verdict.killed_at} and resumed, the run of {verdict.steps} steps has the same "
            "samples, losses, weights, optimizer and random state, bit for bit"
        )
    shown = "; ".join(verdict.differences[:4])
    if not verdict.repeatable:
        return (
            f"not exact: {shown}. Two uninterrupted runs differ as well, so the cause is kernels that are not "
            "deterministic, or something that draws from its own generator: try --set deterministic=true"
        )
    return (
        f"not exact: {shown}. Two uninterrupted runs agree, so there is state outside the checkpoint: a generator or "
        "a counter inside the data set or the model. Draw from Python's, NumPy's or torch's global generator "
        "instead, which are seeded for each sample, or register the state as a buffer of the model"
    )


def _run(line: Sequence[str]) -> None:
    done = subprocess.run(_command(line), capture_output=True, text=True, timeout=_DEADLINE_S)
    if done.returncode != 0:
        last = [row for row in done.stderr.splitlines() if row.startswith("gpudoc:")] or done.stderr.splitlines()[-1:]
        raise GpudocError(
            f"the run fails even without being killed: {' '.join(last).removeprefix('gpudoc: ')}",
            exit_code=ExitCode.BAD_ANSWER,
        )


def _run_and_kill(line: Sequence[str], run: Path) -> None:
    """Start a run and kill it with all its workers as soon as its checkpoint is complete."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(_command(line), stdout=said, stderr=said, start_new_session=True)
        deadline = time.monotonic() + _DEADLINE_S
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if (run / "checkpoints" / f"step-{KILL_AFTER}" / checkpoint.MANIFEST).exists():
                    break
                time.sleep(0.005)
        finally:
            end_family(process)
        if not checkpoint.found_in(run / "checkpoints"):
            said.seek(0)
            last = said.read().strip().splitlines()[-1:]
            raise GpudocError(f"the run ended before it was killed: {' '.join(last)}", exit_code=ExitCode.BAD_ANSWER)
    # the run may have advanced further before the kill arrived; resume it from the intended step
    checkpoint.settle_ruins(run / "checkpoints")
    checkpoint.remove_others(run / "checkpoints", {KILL_AFTER})
    (run / "summary.json").unlink(missing_ok=True)


def _command(line: Sequence[str]) -> list[str]:
    return [*own_module("gpudoc"), "train", *line]


def _differences(one: Path, other: Path) -> Iterator[str]:
    """The differences between two finished runs: first in the losses, then in each part of the last state."""
    a, b = (_losses(run) for run in (one, other))
    first = next((step for step in sorted(a | b) if a.get(step) != b.get(step)), None)
    if first is not None:
        yield f"the loss of step {first} is {b.get(first)} instead of {a.get(first)}"
    left, right = (load(run / "checkpoints" / f"step-{STEPS}") for run in (one, other))
    if left.state.get("samples_digest") != right.state.get("samples_digest"):
        yield "different samples were read"
    names = [name for name in left.model if digest(left.model[name]) != digest(right.model.get(name))]
    if names:
        yield f"{len(names)} of {len(left.model)} tensors of the model differ, first {names[0]}"
    if digest(dict(left.optimizer)) != digest(dict(right.optimizer)):
        yield "the optimizer's state differs"
    for key in left.state:
        if key not in _NOT_STATE and left.state[key] != right.state.get(key):
            yield f"{key} differs"
    for rank in range(cast(int, left.state.get("world", 1))):
        random, others = left.rng(rank) or {}, right.rng(rank) or {}
        drawn = [name for name in random if digest(random[name]) != digest(others.get(name))]
        if drawn:
            yield f"the random state of {', '.join(drawn)} differs"


def _losses(run: Path) -> dict[int, float]:
    rows = [json.loads(text) for text in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}
