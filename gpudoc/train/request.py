"""The request of the command line, and the command that continues a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.process.arguments import without
from gpudoc.train.settings import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What the command line asks for; `flags` are settings that were typed, `arguments` the line to repeat.

    `may_restart`: this process is the command itself and may start again when the settings need another environment.
    `shared`: others may compute on the GPU meanwhile. `on_hang`: 'report' or 'end', when nothing moves any more.
    """

    model: str = "quickstart"
    profile: str = "auto"
    device: str = "auto"
    flags: Mapping[str, Value] = field(default_factory=dict)
    memory_limit_bytes: int | None = None
    run_dir: Path | None = None
    resume: str = "auto"
    preflight: bool = True
    trace_steps: int = 0
    log_to: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    may_restart: bool = False
    shared: bool = False
    on_hang: str = "report"


def go_on(request: TrainRequest, run_dir: Path) -> str:
    """The command that continues this run."""
    kept = without(request.arguments, "--resume", "--run-dir")
    if not any(word.partition("=")[0] == "--model" for word in kept):
        kept += ["--model", request.model]
    return shlex.join(["gpudoc", "train", *kept, "--resume", str(run_dir)])
