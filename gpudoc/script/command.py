"""The tuned command, with a batch put in or without one."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.patterns import Pattern, escape
from gpudoc.script.remember import BATCH
from gpudoc.shell import quote_path

# an option whose whole value is the placeholder: '--batch-size={batch}', and Hydra's 'train.batch={batch}'
_WHOLE_ASSIGNMENT = Pattern(r"[\w.+-]+=" + escape(BATCH))


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a user's script, with or without `{batch}`."""

    words: tuple[str, ...]

    @property
    def takes_batch(self) -> bool:
        """Whether the command contains {batch}."""
        return any(BATCH in word for word in self.words)

    def at(self, batch: int | None) -> tuple[str, ...]:
        """The words with the batch put in; unchanged for a command without {batch}, or for None."""
        return self.words if batch is None else tuple(word.replace(BATCH, str(batch)) for word in self.words)

    def without_batch(self) -> tuple[str, ...] | None:
        """The command as its owner runs it by default: without the option that takes {batch}; None if {batch} is a part
        of something else.
        """
        kept: list[str] = []
        for word in self.words:
            if BATCH not in word:
                kept.append(word)
            elif word == BATCH and kept and kept[-1].startswith("-") and "=" not in kept[-1]:
                kept.pop()
            elif _WHOLE_ASSIGNMENT.fullmatch(word) is None:
                return None
        return tuple(kept)

    def __str__(self) -> str:
        return shlex.join(self.words).replace(f"'{BATCH}'", BATCH)


def checked(words: Sequence[str]) -> Command:
    """The command; GpudocError if there is nothing to start."""
    if not words:
        raise GpudocError(
            "nothing to tune: give --model or a command after --",
            hint="gpudoc tune --model quickstart, with your own cfg.yaml, or gpudoc tune -- python train.py",
        )
    if shutil.which(words[0]) is None:
        found = Path(words[0])
        what = "cannot be executed" if found.is_file() else "no such command"
        hint = (
            f"gpudoc tune -- python {shlex.join(words)}"
            if words[0].endswith(".py")
            else f"command -v {quote_path(words[0])}"
        )
        raise GpudocError(f"{words[0]}: {what}", hint=hint)
    missing = next(
        (w for w in words[1:] if w.endswith(".py") and "/" not in w.strip("/") and not Path(w).exists()), None
    )
    if missing is not None and Path(words[0]).name.startswith("python") and words[1] == missing:
        raise GpudocError(f"{missing}: no such file here", hint="ls *.py")
    return Command(tuple(words))
