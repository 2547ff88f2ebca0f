"""The result of `fix`, and the code that writes it if the user asked for that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fix.evidence import files_of
from gpudoc.fix.loops import ShortPasses, find_short_passes
from gpudoc.fix.model import Refusal, RunEvidence, name_of
from gpudoc.fix.options import FixOptions
from gpudoc.fix.proof import FixProof
from gpudoc.fix.source import unified_diff
from gpudoc.script.look import ScriptLook
from gpudoc.shell import quote_path
from gpudoc.writing import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class FixResult:
    """The result: `accepted` proofs in the order in which they were made, each on top of the previous ones.

    `before` and `after` hold the whole text of each changed file. `unequal`: how the script differs from itself.
    """

    options: FixOptions
    look: ScriptLook | None
    evidence: RunEvidence
    accepted: tuple[FixProof, ...]
    refused: tuple[Refusal, ...]
    lost: tuple[FixProof, ...]
    before: dict[Path, str]
    after: dict[Path, str]
    whole: FixProof | None
    launches: int
    seconds: float
    notes: tuple[str, ...] = ()
    untried: int = 0
    unequal: str = ""
    written: tuple[Path, ...] = ()
    interrupted: bool = False

    @property
    def diff(self) -> bytes:
        """All accepted changes, for `patch -p1` in the current folder."""
        return b"".join(
            unified_diff(name_of(path), self.before[path], self.after[path])
            for path in self.before
            if self.before[path] != self.after[path]
        )

    @property
    def short_passes(self) -> tuple[ShortPasses, ...]:
        """Loops of many short passes in the original script; empty if a change was accepted."""
        if self.look is None or self.accepted:
            return ()
        return find_short_passes(self.evidence, self.look.step_s, files_of(self.evidence, Path.cwd()))

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the start of the command."""
        return {name: value for proof in self.accepted for name, value in proof.candidate.environment}

    @property
    def exit_code(self) -> ExitCode:
        """1 if a change is proved, 2 if nothing could be decided, else 0; 130 after Ctrl+C."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.accepted:
            return ExitCode.BAD_ANSWER
        return ExitCode.NOT_DONE if self.untried or self.unequal else ExitCode.OK


def check_writable(path: Path | None) -> None:
    """GpudocError if a file exists whose mode allows no user to write it; root could, but the mode is deliberate."""
    if path is not None and path.is_file() and not path.stat().st_mode & 0o222:
        raise GpudocError(f"{name_of(path)} is not writable", hint=f"chmod u+w {quote_path(path)}; or --patch FILE")


def write_changes(result: FixResult) -> FixResult:
    """Write the proved changes; GpudocError before any write if a file was changed meanwhile or is not writable."""
    changed = [path for path in result.before if result.before[path] != result.after[path]]
    for path in changed:
        try:
            now = path.read_bytes()
        except OSError as problem:
            raise GpudocError(f"{name_of(path)} can no longer be read: {problem.strerror}") from problem
        check_writable(path)
        if now != result.before[path].encode("utf-8"):
            raise GpudocError(
                f"{name_of(path)} was changed while fix was running, so fix did not write its change",
                hint="run the same command again; or --patch FILE",
            )
    for path in changed:
        write_whole(path, result.after[path], hint="--patch fix.patch")
    return replace(result, written=tuple(changed))
