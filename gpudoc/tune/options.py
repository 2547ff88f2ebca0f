"""What a search was asked for, checked before anything is run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpudoc.doctor.device import Choice
from gpudoc.doctor.sharing import require_alone
from gpudoc.errors import GpudocError
from gpudoc.facts.host import memory_free_bytes
from gpudoc.facts.model import Absent, Machine
from gpudoc.progress import Progress
from gpudoc.shell import quote_path
from gpudoc.units import MIB, format_seconds, parse_duration, parse_size

T = TypeVar("T")
PARTS = ("batch", "speed", "loader", "scaling")
GOALS = ("throughput", "largest")
_LEAST_BUDGET_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was asked for; sizes in bytes, times in seconds, None where nothing was said."""

    source: str
    device: str = "auto"
    budget_s: float = 300.0
    goal: str = "throughput"
    parts: frozenset[str] = frozenset(PARTS[:3])
    max_batch: int | None = None
    memory_limit_bytes: int | None = None
    out: Path | None = None
    fresh: bool = False
    gpus: str | None = None
    shared: bool = False

    def cost(self, devices: int, *, on_gpu: bool) -> str:
        """The most that the search takes, in minutes and, on GPUs, in hours of all of them."""
        hours = f", {devices * self.budget_s / 3600:.2f} GPU-hours" if on_gpu else ""
        return f"takes at most {format_seconds(self.budget_s)}{hours}"

    @property
    def is_scaling_only(self) -> bool:
        """Whether nothing is to be tuned, only measured."""
        return self.parts == {"scaling"}

    @staticmethod
    def of(*, source: str, device: str, goal: str, only: str, budget: str, memory_limit: str) -> Options:
        """Options from what was typed; GpudocError (exit 2) for what cannot be read."""
        return Options(
            source=source,
            device=device,
            goal=goal,
            parts=frozenset(part.strip() for part in only.split(",") if part.strip()),
            budget_s=_read(parse_duration, "--budget", budget),
            memory_limit_bytes=_read(parse_size, "--memory-limit", memory_limit) if memory_limit else None,
        )

    def also(
        self, *, max_batch: int | None, out: Path | None, fresh: bool, gpus: str | None = None, shared: bool = False
    ) -> Options:
        """The same with the options that need no reading."""
        return replace(self, max_batch=max_batch, out=out, fresh=fresh, gpus=gpus, shared=shared)

    @property
    def tuning_s(self) -> float:
        """Seconds for what is tuned: half of the budget where the scaling is measured after it."""
        both = "scaling" in self.parts and not self.is_scaling_only
        return self.budget_s / 2 if both else self.budget_s

    @property
    def scaling_s(self) -> float:
        """Seconds for measuring the scaling."""
        return self.budget_s if self.is_scaling_only else self.budget_s - self.tuning_s

    @property
    def asked(self) -> tuple[str, ...]:
        """The options that were given, as they are typed, but for the budget."""
        parts = ",".join(part for part in PARTS if part in self.parts)
        given = {
            "--device": self.device if self.device != "auto" else "",
            "--goal": self.goal if self.goal != "throughput" else "",
            "--only": parts if self.parts != frozenset(PARTS[:3]) else "",
            "--max-batch": str(self.max_batch or ""),
            "--memory-limit": f"{self.memory_limit_bytes // MIB}MiB" if self.memory_limit_bytes else "",
            "--gpus": self.gpus or "",
            "--out": str(self.out or ""),
        }
        return tuple(word for name, value in given.items() if value for word in (name, value))

    def check(self) -> None:
        """GpudocError (exit 2) for values that make no sense together."""
        if self.goal not in GOALS:
            raise GpudocError(f"no such goal: {self.goal!r}", hint="--goal throughput or --goal largest")
        unknown = sorted(self.parts - set(PARTS))
        if unknown or not self.parts:
            raise GpudocError(
                f"--only: no such part: {', '.join(unknown) or '(empty)'}", hint=f"--only {','.join(PARTS)}"
            )
        if self.budget_s < _LEAST_BUDGET_S:
            raise GpudocError(
                f"--budget {self.budget_s:g}s is too short for two trials",
                hint=f"--budget {_LEAST_BUDGET_S:.0f}s or more",
            )
        if self.max_batch is not None and self.max_batch < 1:
            raise GpudocError(f"--max-batch {self.max_batch}: at least 1", hint="--max-batch 256")
        if self.is_scaling_only and self.out is not None:
            raise GpudocError(
                "--only scaling tunes nothing, so there is no profile for --out", hint="--json > scaling.json"
            )


def look_around(options: Options, choice: Choice, machine: Machine, progress: Progress, ranks: int) -> None:
    """GpudocError (exit 1) when others compute on the GPUs of the trials and --shared was not given."""
    ordinals = range(ranks) if ranks > 1 else [choice.index]
    others = require_alone(machine, ordinals, shared=options.shared) if choice.device == "cuda" else ""
    if others:
        progress.say(f"! {others}; what is found holds beside them only")


def check_writable(path: Path, *, is_named: bool = False) -> None:
    """GpudocError when the profile could not be written to `path`; asked before the search begins.

    Where the user named the file, its folder has to exist; the folders of gpudoc's own profiles are made.
    """
    folder = path.parent
    if is_named and not folder.is_dir():
        raise GpudocError(
            f"{path}: there is no folder {folder}", hint=f"mkdir -p {quote_path(folder)}, or another place for --out"
        )
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        if path.is_dir():
            raise IsADirectoryError
        # asked of the file system itself, since an administrator passes every check of permissions
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError:
        message = f"{path.parent}: the profile cannot be written there"
        raise GpudocError(message, hint="choose another place: --out FILE") from None


def _read(read: Callable[[str], T], option: str, text: str) -> T:
    try:
        return read(text)
    except ValueError as problem:
        raise GpudocError(f"{option}: {problem}") from None


def check_system(on_gpu: bool) -> None:
    """GpudocError where trials cannot be started (no fork), or on a CPU not be limited (no /proc)."""
    hint = "on Linux or inside WSL 2; or train without it: gpudoc train --batch-size N"
    if not hasattr(os, "fork"):
        raise GpudocError("tune starts its trials by fork, which this system does not have", hint=hint)
    if not on_gpu and not Path("/proc/self/status").exists():
        raise GpudocError("tune on a CPU needs a real memory limit, which only Linux has", hint=hint)


def free_host_bytes() -> int:
    """Memory that the trials may take on the host; GpudocError where that cannot be read and has to be said."""
    free = memory_free_bytes()
    if isinstance(free, Absent):
        raise GpudocError("how much memory is free cannot be read here", hint="say it: --memory-limit 8GiB")
    return free
