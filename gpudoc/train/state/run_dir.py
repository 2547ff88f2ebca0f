"""The run directory: its choice, its lock while in use, and the files that a resumed run keeps."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoc import writing
from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.locks import InUseError, Lock, take_lock
from gpudoc.reading import UnreadableError
from gpudoc.shell import quote_path
from gpudoc.train.state.checkpoint import Bad, found_in, newest_good, ruins, settle_ruins
from gpudoc.workload.config import Config
from gpudoc.yaml_files import dump_yaml, read_yaml

# the sections of the config that must not change when a run continues
_FIXED_SECTIONS = ("model", "data", "loss", "optimizer")


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory and the places in it."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def config(self) -> Path:
        """The config as it was understood."""
        return self.path / "config.yaml"

    @property
    def profile(self) -> Path:
        """The profile in use, with this run's rescues."""
        return self.path / "profile.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object per logged step."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The summary of the run."""
        return self.path / "summary.json"


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The run to work in, the checkpoint to continue from if any, and the newer checkpoints that are bad."""

    run: Run
    checkpoint: Path | None
    bad: tuple[Bad, ...] = ()
    finished: bool = False


def lock_run(run: Run) -> Lock:
    """Exclusive use of a run directory until the process ends; GpudocError if another process has it.

    If the file system has no locks, `why_not` of the result says so, and other processes are not kept out.
    """
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        # loader workers are forks, but they do not hold the lock
        lock = take_lock(run.path / ".lock", owner="process")
        with contextlib.suppress(OSError):
            lock.note(f"process {os.getpid()} on {platform.node()}\n")
    except InUseError as problem:
        holder = str(problem).strip() or "another process"
        raise GpudocError(
            f"{escape_line(run.path)}: in use by {escape_line(holder)}",
            hint="wait for it, or use another folder: --run-dir DIR",
        ) from None
    except OSError as problem:
        raise GpudocError(
            f"{escape_line(run.path)}: the run directory cannot be written: {problem.strerror}", hint="--run-dir DIR"
        ) from None
    return lock


def identity(config: Config, settings: Mapping[str, object]) -> dict[str, object]:
    """The values that must stay the same for a run to continue: model, data, loss, optimizer, seed, global batch."""
    sections = {name: config.model_dump(mode="json")[name] for name in _FIXED_SECTIONS}
    return {**sections, "seed": settings["seed"], "global_batch": settings["global_batch"]}


def choose(name: str, asked: Path | None, resume: str, fixed: Mapping[str, object], end_step: int) -> RunChoice:
    """The run directory for --run-dir and --resume (auto, never, a directory); GpudocError if they conflict."""
    if resume not in ("auto", "never"):
        return _explicit(Path(resume), fixed, end_step)
    if asked is not None:
        run = Run(asked)
        if not _is_started(run):
            return RunChoice(run, None)
        if resume == "never":
            raise GpudocError(
                f"{escape_line(asked)}: already contains a run",
                hint=f"--resume auto continues it; or choose another --run-dir than {quote_path(asked)}",
            )
        return _explicit(asked, fixed, end_step)
    base = Path("runs") / name
    started = [run for run in _series(base) if _is_started(run)]
    if resume == "auto":
        for run in reversed(started):
            if _differences(run, fixed) == [] and not is_finished(run, end_step):
                return _go_on(run, end_step)
    return RunChoice(_next_free(base), None)


def is_finished(run: Run, end_step: int) -> bool:
    """Whether the run came to its end, or has all requested steps."""
    try:
        summary = json.loads(run.summary.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(summary, dict):
        return False
    steps = summary.get("steps")
    return summary.get("status") == "finished" or (isinstance(steps, int) and steps >= end_step)


def write_config(run: Run, config: Config, fixed: Mapping[str, object], name: str) -> None:
    """Save the config together with the values that must not change."""
    document = {"name": name, "fixed": dict(fixed), "config": config.model_dump(mode="json")}
    text = "# What gpudoc train runs here; `fixed` may not change when the run continues.\n"
    write_whole(run.config, text + dump_yaml(document))


def write_whole(path: Path, text: str) -> None:
    """Write a small file of a run completely or not at all; GpudocError if the place cannot be written."""
    writing.write_whole(path, text, hint="--run-dir DIR")


def cut_metrics(run: Run, last_step: int) -> None:
    """Remove the lines of metrics.jsonl for steps after `last_step`, and an incomplete last line."""
    if not run.metrics.is_file():
        # a link to a device has no end
        return
    try:
        lines = run.metrics.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return
    kept = [line for line in lines if _step_of(line) <= last_step]
    write_whole(run.metrics, "".join(f"{line}\n" for line in kept))


def _explicit(path: Path, fixed: Mapping[str, object], end_step: int) -> RunChoice:
    run = Run(path)
    if not path.is_dir():
        raise GpudocError(f"{escape_line(path)}: no such run directory", hint=_known_runs())
    if not _is_started(run):
        raise GpudocError(f"{escape_line(path)}: no run to continue; it has neither checkpoints nor logged steps")
    changed = _differences(run, fixed)
    if changed:
        raise GpudocError(
            f"{escape_line(path)}: the run cannot continue, because this changed: {'; '.join(changed)}",
            hint="change it back, or start again: --resume never --run-dir runs/NEW",
        )
    return _go_on(run, end_step)


def _go_on(run: Run, end_step: int) -> RunChoice:
    if ruins(run.checkpoints):
        # ruins may be touched only while no process writes the run
        lock = lock_run(run)
        settle_ruins(run.checkpoints)
        lock.remove()
    good, bad = newest_good(run.checkpoints)
    if good is None and bad:
        listed = escape_line("; ".join(f"{b.path.name}: {b.reason}" for b in bad))
        raise GpudocError(
            f"{escape_line(run.path)}: no checkpoint is complete: {listed}",
            hint="start again: --resume never --run-dir runs/NEW",
        )
    done = int(good.name.removeprefix("step-")) if good is not None else 0
    return RunChoice(run, good, tuple(bad), finished=done >= end_step and is_finished(run, end_step))


def _differences(run: Run, fixed: Mapping[str, object]) -> list[str]:
    unreadable = ["its config.yaml cannot be read"]
    try:
        document = read_yaml(run.config, "run config").data
    except UnreadableError:
        return unreadable
    before = document.get("fixed") if isinstance(document, dict) else None
    if not isinstance(before, dict):
        return unreadable
    # as JSON, since YAML does not keep tuples and spells some floats differently
    return [
        f"{key} was {_short(before.get(key))}, is {_short(value)}"
        for key, value in fixed.items()
        if _as_json(before.get(key)) != _as_json(value)
    ]


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except (TypeError, ValueError):
        # keys of several types, which a run never writes
        return repr(value)


def _short(value: object) -> str:
    text = _as_json(value)
    return text if len(text) <= 90 else text[:87] + "..."


def _is_started(run: Run) -> bool:
    """Whether a run has anything to continue from; a run that failed before its first logged step starts again."""
    logged = run.metrics.is_file() and run.metrics.stat().st_size > 0
    return logged or bool(found_in(run.checkpoints) or ruins(run.checkpoints))


def _series(base: Path) -> list[Run]:
    runs = [Run(base)]
    number = 2
    while (path := base.with_name(f"{base.name}-{number}")).exists():
        runs.append(Run(path))
        number += 1
    return runs


def _next_free(base: Path) -> Run:
    last = _series(base)
    if not _is_started(last[0]):
        return last[0]
    return Run(base.with_name(f"{base.name}-{len(last) + 1}"))


def _known_runs() -> str:
    try:
        names = sorted(quote_path(entry) for entry in Path("runs").iterdir() if entry.is_dir())
    except OSError:
        names = []
    return f"runs here: {', '.join(names[-5:])}" if names else "there are no runs here"


def _step_of(line: str) -> float:
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return float("inf")
    return float(step) if isinstance(step, int) else float("inf")
