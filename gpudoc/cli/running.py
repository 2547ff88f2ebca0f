"""`gpudoc train -- COMMAND`: run the command with tune's settings, or write the SLURM job that runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern
from gpudoc.shell import quote_path

if TYPE_CHECKING:
    from gpudoc.script.run import RunEnd

# options that mean the same for a command; the command itself decides everything else
_COMMON = frozenset({"--profile", "--allow", "--slurm", "--on-hang", "--json", "--plain", "--verbose"})
_OF_A_JOB = frozenset({"--gpus", "--device"})
# the number of processes that a launcher starts on each node: the options of torchrun and accelerate
_RANKS = Pattern(r"--(?:nproc[-_]per[-_]node|num[-_]processes)(?:=(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWish:
    """The user's request."""

    profile: str
    allow: str
    slurm: Path | None
    gpus: str | None
    device: str
    on_hang: str
    json: bool
    plain: bool


def typed_options(context: typer.Context) -> frozenset[str]:
    """The options on the command line, by their long names."""
    sources = ((parameter, context.get_parameter_source(parameter.name or "")) for parameter in context.command.params)
    return frozenset(
        max(parameter.opts, key=len)
        for parameter, source in sources
        if source is not None and source.name == "COMMANDLINE"
    )


def run_command(command: tuple[str, ...], wish: RunWish, typed: frozenset[str]) -> int:
    """Run the command and return its exit code; GpudocError for options that do not apply to a command."""
    if not command:
        raise GpudocError("--allow goes with a command after --", hint="gpudoc train --allow batch -- python train.py")
    foreign = sorted(typed - _COMMON - (_OF_A_JOB if wish.slurm is not None else frozenset()))
    if foreign:
        raise GpudocError(
            f"{foreign[0]} goes with --model; the command after -- decides that itself",
            hint="gpudoc train -- COMMAND, without this option",
        )
    allowed = {part.strip() for part in wish.allow.split(",") if part.strip()}
    if allowed - {"batch"}:
        raise GpudocError(f"--allow {wish.allow}: train accepts only --allow batch", hint="--allow batch")
    from gpudoc.script.apply import apply
    from gpudoc.train.watch.watch import check

    on_hang = check(wish.on_hang)
    applied = apply(command, profile=wish.profile, allow_batch="batch" in allowed)
    if wish.slurm is not None:
        return _write_job(command, wish, wish.slurm)
    from gpudoc.render.script_run import RunScreen
    from gpudoc.script.run import run

    screen = RunScreen(as_json=wish.json, plain=wish.plain)
    screen.begin(applied)
    finished: RunEnd = run(applied, screen, all_to_stderr=wish.json, on_hang=on_hang)
    return screen.show(finished)


def _write_job(command: Sequence[str], wish: RunWish, place: Path) -> int:
    from gpudoc.process.arguments import without
    from gpudoc.render.train import Screen, tell
    from gpudoc.script.remember import script_name
    from gpudoc.train.start.launch import choose_ranks
    from gpudoc.train.start.place import Elsewhere
    from gpudoc.train.start.slurm import SlurmJob, sbatch_text
    from gpudoc.writing import write_whole

    own = sys.argv[2 : sys.argv.index("--")]
    ranks = _ranks_of(command) if wish.gpus in (None, "auto") else choose_ranks(wish.gpus, device="cpu", num_gpus=0)
    job = SlurmJob(
        name=Path(script_name(command)).stem,
        arguments=without(own, "--slurm", "--gpus", "--device", flags=("--plain", "--json")),
        python=sys.executable,
        folder=str(Path.cwd()),
        ranks=ranks,
        on_gpu=wish.device != "cpu",
        command=command,
    )
    write_whole(place, sbatch_text(job), hint="--slurm job.sh", executable=True)
    written = Elsewhere(0, f"{escape_line(place)} is written; look it over, then run: sbatch {quote_path(place)}")
    return tell(written, Screen(as_json=wish.json, plain=wish.plain))


def _ranks_of(command: Sequence[str]) -> int:
    """How many processes the command's launcher starts on a node; 1 if it gives no number."""
    for place, word in enumerate(command):
        found = _RANKS.fullmatch(word)
        number = found and (found[1] or next(iter(command[place + 1 : place + 2]), ""))
        if number and number.isdecimal() and int(number):
            return int(number)
    return 1
