"""What `tune -- COMMAND` was asked for, checked before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpudoc.errors import GpudocError
from gpudoc.script.command import Command, checked
from gpudoc.units import MIB, parse_duration, parse_size

T = TypeVar("T")
PARTS = ("look", "loader", "batch")
GOALS = ("throughput", "largest")
ALLOWED = ("batch", "network")
_LEAST_BUDGET_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command and what may be done with it; sizes in bytes, times in seconds, None where nothing was said."""

    command: Command
    budget_s: float = 300.0
    goal: str = "throughput"
    parts: frozenset[str] = frozenset(PARTS)
    allow: frozenset[str] = frozenset()
    in_place: bool = False
    memory_limit_bytes: int | None = None
    max_batch: int | None = None
    out: Path | None = None
    fresh: bool = False
    shared: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """The options that were given, as they are typed, but for the budget."""
        given = {
            "--only": ",".join(part for part in PARTS if part in self.parts) if self.parts != frozenset(PARTS) else "",
            "--goal": self.goal if self.goal != "throughput" else "",
            "--allow": ",".join(sorted(self.allow)),
            "--memory-limit": f"{self.memory_limit_bytes // MIB}MiB" if self.memory_limit_bytes else "",
            "--max-batch": str(self.max_batch or ""),
            "--out": str(self.out or ""),
        }
        words = [word for name, value in given.items() if value for word in (name, value)]
        return (*words, *(["--in-place"] if self.in_place else []))

    @property
    def only_looks(self) -> bool:
        """Whether the script is looked at and nothing is tuned."""
        return self.parts == {"look"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The options as they were typed; an empty text where nothing was."""

    budget: str = "5m"
    goal: str = "throughput"
    only: str = ""
    allow: str = ""
    memory_limit: str = ""
    max_batch: int | None = None
    out: Path | None = None
    in_place: bool = False
    fresh: bool = False
    shared: bool = False
    # what a command decides by itself, by the option's name
    foreign: tuple[str, ...] = ()


def options_of(words: tuple[str, ...], typed: Typed) -> Options:
    """Options from what was typed; GpudocError (exit 2) for what cannot be read or makes no sense together."""
    if typed.foreign:
        raise GpudocError(
            f"{typed.foreign[0]} goes with --model; what stands after -- decides that itself",
            hint="gpudoc tune -- COMMAND, without it",
        )
    if typed.goal not in GOALS:
        raise GpudocError(f"no such goal: {typed.goal!r}", hint="--goal throughput or --goal largest")
    budget_s = _read(parse_duration, "--budget", typed.budget)
    if budget_s < _LEAST_BUDGET_S:
        hint = f"--budget {_LEAST_BUDGET_S:.0f}s or more"
        raise GpudocError(f"--budget {budget_s:g}s is too short to start a script twice", hint=hint)
    if typed.max_batch is not None and typed.max_batch < 1:
        raise GpudocError(f"--max-batch {typed.max_batch}: at least 1", hint="--max-batch 256")
    parts = _among("--only", typed.only, PARTS) or frozenset(PARTS)
    if parts == {"look"} and typed.out is not None:
        raise GpudocError("--only look tunes nothing, so there is no profile for --out", hint="--json > look.json")
    return Options(
        command=checked(words),
        budget_s=budget_s,
        goal=typed.goal,
        parts=parts,
        allow=_among("--allow", typed.allow, ALLOWED),
        in_place=typed.in_place,
        memory_limit_bytes=_read(parse_size, "--memory-limit", typed.memory_limit) if typed.memory_limit else None,
        max_batch=typed.max_batch,
        out=typed.out,
        fresh=typed.fresh,
        shared=typed.shared,
    )


def _among(option: str, text: str, names: tuple[str, ...]) -> frozenset[str]:
    asked = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(asked - set(names))
    if unknown:
        raise GpudocError(f"{option}: no such part: {', '.join(unknown)}", hint=f"{option} {','.join(names)}")
    return asked


def _read(read: Callable[[str], T], option: str, text: str) -> T:
    try:
        return read(text)
    except ValueError as problem:
        raise GpudocError(f"{option}: {problem}") from None
