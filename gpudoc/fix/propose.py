"""All changes that the evidence of one run allows in one file, each checked before it is run."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path

from gpudoc.fix.model import Candidate, HotLine, Refusal, RunEvidence
from gpudoc.fix.rewrites import REWRITES
from gpudoc.fix.rewrites.base import Proposal, Rewrite
from gpudoc.fix.source import MOST_HUNK_LINES, Source, UnfixableError, changed_lines, parse_source, read_source


def propose(path: Path, evidence: RunEvidence) -> list[Proposal]:
    """The candidates and refusals in the file at `path`, in the order in which they should be tried.

    UnfixableError if the file itself may not be changed.
    """
    return propose_in(read_source(path), evidence)


def propose_in(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Like `propose`, for a file that is already read."""
    found: list[Proposal] = []
    for rewrite in REWRITES:
        for one in rewrite.find(source, evidence):
            checked = checked_candidate(source, evidence, rewrite, one) if isinstance(one, Candidate) else one
            if checked not in found:
                found.append(checked)
    return found


def checked_candidate(source: Source, evidence: RunEvidence, rewrite: Rewrite, candidate: Candidate) -> Proposal:
    """The candidate, or a refusal with the reason why it may not be offered."""

    def refused(reason: str) -> Refusal:
        return Refusal(rewrite.id, source.path, candidate.line, reason)

    if candidate.environment:
        return candidate
    if candidate.after == candidate.before or candidate.before != source.text:
        return refused("the change leaves the file as it is")
    if changed_lines(candidate.before, candidate.after) > 2 * MOST_HUNK_LINES:
        return refused(f"it would change more than {MOST_HUNK_LINES} lines")
    try:
        after = parse_source(source.path, candidate.after.encode("utf-8"))
    except UnfixableError as problem:
        return refused(f"the changed file would not be valid Python: {problem}")
    lines = _LineMap(candidate.before, candidate.after)
    for moved in lines.moved(source.path, evidence):
        for again in rewrite.find(after, moved):
            if isinstance(again, Candidate) and again.line in lines.new:
                return refused("the same rewrite would change the changed file again at the same place")
    return candidate


class _LineMap:
    """Where the lines of a file are after a change."""

    def __init__(self, before: str, after: str) -> None:
        self.new: set[int] = set()
        """The lines that the change wrote."""
        self._moved: dict[int, list[int]] = {}
        pieces = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False).get_opcodes()
        for kind, start, end, new_start, new_end in pieces:
            if kind != "equal":
                self.new.update(range(new_start + 1, new_end + 1))
            for line in range(start, end):
                same = [line - start + new_start + 1]
                self._moved[line + 1] = same if kind == "equal" else list(range(new_start + 1, new_end + 1))

    def moved(self, path: Path, evidence: RunEvidence) -> list[RunEvidence]:
        """The evidence at the new lines; several if one line became several and only one can be named."""

        def at(file: Path, line: int) -> list[int]:
            return self._moved.get(line, []) if file == path else [line]

        hot = tuple(HotLine(one.file, line, one.share) for one in evidence.hot for line in at(one.file, one.line))
        changed = dataclasses.replace(
            evidence,
            hot=hot,
            keeps_at=tuple((file, new) for file, line in evidence.keeps_at for new in at(file, line)),
            no_backward_at=tuple((file, new) for file, line in evidence.no_backward_at for new in at(file, line)),
        )
        found = [changed]
        if (died := evidence.died_at) is not None:
            found = [
                dataclasses.replace(one, died_at=dataclasses.replace(died, line=line))
                for one in found
                for line in at(died.file, died.line)
            ] or found
        if (loader := evidence.loader_line) is not None:
            found = [
                dataclasses.replace(one, loader_line=(loader[0], line)) for one in found for line in at(*loader)
            ] or found
        return found
