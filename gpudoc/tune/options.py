"""The options of a search, as they are typed: one record for a workload and for a command.

The command line, the Python API and the search read the same fields; each field carries its help text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from gpudoc.errors import GpudocError
from gpudoc.frozen import dataclass
from gpudoc.option import Option
from gpudoc.units import MIB, format_seconds, parse_duration, parse_size

T = TypeVar("T")
PARTS = ("batch", "speed", "loader", "scaling")
# the parts that are tuned if --only is not given
TUNED = frozenset(PARTS[:3])
COMMAND_PARTS = ("look", "loader", "batch")
GOALS = ("throughput", "largest")
_ALLOWED = ("batch", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The options of `gpudoc tune`, written as on the command line; either `model` or `command` says what is tuned."""

    model: Annotated[
        str, Option("Tune this cfg.yaml, or the built-in quickstart or images. For a script: tune -- COMMAND.", "FILE")
    ] = ""
    budget: Annotated[str, Option("Limit the search to this time: 90s, 5m, 1h.", "TIME")] = "5m"
    goal: Annotated[
        str,
        Option("Aim for throughput (fastest, with memory to spare) or for the largest batch.", "GOAL"),
    ] = "throughput"
    only: Annotated[
        str,
        Option("Search only these parts: batch,speed,loader or scaling; for a command: look,loader,batch.", "PART,..."),
    ] = ""
    max_batch: Annotated[int | None, Option("Try no batch above this one.", "N")] = None
    device: Annotated[str, Option("Use this device: auto, cpu, cuda or cuda:N.", "NAME")] = "auto"
    gpus: Annotated[
        str | None,
        Option(
            "Use this many GPUs (or auto), one process each; on a CPU, N processes.",
            "N",
            ("--gpus", "--ranks"),
        ),
    ] = None
    shared: Annotated[bool, Option("Continue even while other processes use the GPU.")] = False
    memory_limit: Annotated[str, Option("Limit memory to this: 8GiB, 512MiB.", "SIZE")] = ""
    target: Annotated[
        str,
        Option(
            "Predict for these GPUs or sizes, without a run: 'RTX 3090', 24GiB, ...",
            "GPU_OR_SIZE,...",
        ),
    ] = ""
    allow: Annotated[
        str, Option("For a command: let trials use the network (network) or compare batch sizes (batch).", "WHAT,...")
    ] = ""
    in_place: Annotated[bool, Option("For a command: let trials write files and use the network.")] = False
    out: Annotated[Path | None, Option("Write the profile to this file.", "FILE")] = None
    fresh: Annotated[bool, Option("Forget the trials of an earlier, unfinished search.")] = False
    command: tuple[str, ...] = ()

    @property
    def budget_s(self) -> float:
        """Seconds for the search; GpudocError (exit 2) if `budget` is not a duration."""
        return read_value(parse_duration, "--budget", self.budget)

    @property
    def memory_limit_bytes(self) -> int | None:
        """The memory limit of a trial from `--memory-limit`; None if it was not given."""
        return read_value(parse_size, "--memory-limit", self.memory_limit) if self.memory_limit else None

    @property
    def parts(self) -> frozenset[str]:
        """The parts to search: some of PARTS for a workload, some of COMMAND_PARTS for a command."""
        return _names(self.only) or (frozenset(COMMAND_PARTS) if self.command else TUNED)

    @property
    def allowed(self) -> frozenset[str]:
        """The extra permissions of a command's trials (`--allow`)."""
        return _names(self.allow)

    @property
    def only_looks(self) -> bool:
        """Whether a script is looked at and nothing is tuned."""
        return self.parts == {"look"}

    @property
    def is_scaling_only(self) -> bool:
        """Whether nothing is to be tuned, only measured."""
        return self.parts == {"scaling"}

    @property
    def tuning_s(self) -> float:
        """Seconds for tuning: half of the budget if the scaling is measured afterwards."""
        both = "scaling" in self.parts and not self.is_scaling_only
        return self.budget_s / 2 if both else self.budget_s

    @property
    def scaling_s(self) -> float:
        """Seconds for measuring the scaling."""
        return self.budget_s if self.is_scaling_only else self.budget_s - self.tuning_s

    @property
    def asked(self) -> tuple[str, ...]:
        """The options that were given, as they are typed, except the budget."""
        known = COMMAND_PARTS if self.command else PARTS
        parts = ",".join(part for part in known if part in self.parts)
        limit = self.memory_limit_bytes
        given = {
            "--device": self.device if self.device != "auto" else "",
            "--goal": self.goal if self.goal != "throughput" else "",
            "--only": parts if self.parts not in (TUNED, frozenset(COMMAND_PARTS)) else "",
            "--allow": ",".join(sorted(self.allowed)),
            "--max-batch": str(self.max_batch or ""),
            "--memory-limit": f"{limit // MIB}MiB" if limit else "",
            "--gpus": self.gpus or "",
            "--out": str(self.out or ""),
        }
        words = [word for name, value in given.items() if value for word in (name, value)]
        return (*words, *(["--in-place"] if self.in_place else []))

    def cost(self, devices: int, *, on_gpu: bool) -> str:
        """The most that the search takes, in minutes and, on GPUs, in hours of all of them."""
        hours = f", {devices * self.budget_s / 3600:.2f} GPU-hours" if on_gpu else ""
        return f"takes at most {format_seconds(self.budget_s)}{hours}"

    def check(self) -> None:
        """Raise GpudocError (exit 2) for values that cannot be read or that contradict each other."""
        if self.model and self.command:
            raise GpudocError("--model and a command after -- exclude each other", hint="gpudoc tune -- COMMAND")
        self._check_kind()
        if self.goal not in GOALS:
            raise GpudocError(f"no such goal: {self.goal!r}", hint="--goal throughput or --goal largest")
        _check_names("--only", self.parts, COMMAND_PARTS if self.command else PARTS)
        _check_names("--allow", self.allowed, _ALLOWED)
        least_s, purpose = (20.0, "to start a script twice") if self.command else (5.0, "for two trials")
        if self.budget_s < least_s:
            hint = f"--budget {least_s:.0f}s or more"
            raise GpudocError(f"--budget {self.budget_s:g}s is too short {purpose}", hint=hint)
        if self.max_batch is not None and self.max_batch < 1:
            raise GpudocError(f"--max-batch {self.max_batch}: at least 1", hint="--max-batch 256")
        if self.out is not None and (self.only_looks or self.is_scaling_only):
            raise GpudocError(
                f"--only {self.only} tunes nothing, so it has no profile for --out", hint=f"--json > {self.only}.json"
            )
        _ = self.memory_limit_bytes

    def _check_kind(self) -> None:
        """Raise GpudocError for an option that fits only a config or only a command, if the other is tuned."""
        of_command = {"--allow": self.allow, "--in-place": self.in_place}
        of_config = {
            "--target": self.target,
            "--gpus": self.gpus,
            "--device": self.device if self.device != "auto" else "",
        }
        name = next((name for name, value in (of_config if self.command else of_command).items() if value), None)
        if name is not None and self.command:
            raise GpudocError(
                f"{name} goes with --model; the command after -- decides that itself",
                hint="gpudoc tune -- COMMAND, without this option",
            )
        if name is not None:
            raise GpudocError(f"{name} goes with a command after --, not with --model", hint=f"leave out {name}")


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _check_names(option: str, given: frozenset[str], known: tuple[str, ...]) -> None:
    unknown = sorted(given - set(known))
    if unknown:
        raise GpudocError(f"{option}: no such part: {', '.join(unknown)}", hint=f"{option} {','.join(known)}")


def read_value(read: Callable[[str], T], option: str, text: str) -> T:
    """The value that `read` returns for an option's text; GpudocError (exit 2) if it cannot read the text."""
    try:
        return read(text)
    except ValueError as problem:
        raise GpudocError(f"{option}: {problem}") from None
