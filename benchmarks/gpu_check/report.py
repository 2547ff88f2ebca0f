"""What a person sees of a run: a line per step while it goes on, each comparison, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.gpu_check.model import Outcome, Record


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """A step as it ended: its state, what is wrong, and each number as guessed / measured / ratio."""
    why = f": {outcome.sentences[0]}" if outcome.state == "left out" else f", {outcome.seconds:.0f} s"
    yield f"{outcome.state:8} {outcome.step}{why}"
    for one in outcome.comparisons:
        guessed = "no guess" if one.guessed is None else f"{one.guessed:.5g}"
        ratio = "" if one.ratio is None else f" / {one.ratio:.3f}"
        mark = " " if one.is_right else "!"
        yield f"       {mark} {one.name}: {guessed} / {one.measured:.5g} {one.unit}{ratio}"
    if outcome.state != "left out":
        yield from (f"       ! {sentence}" for sentence in outcome.sentences)


def closing_lines(record: Record) -> Iterator[str]:
    """How the whole run ended."""
    passed = sum(one.state == "passed" for one in record.outcomes)
    out = sum(one.state == "left out" for one in record.outcomes)
    yield f"{passed} steps passed, {len(record.failed)} did not, {out} were left out, {record.seconds:.0f} s in all"
    if record.failed:
        yield f"did not pass: {', '.join(record.failed)}"
    yield from (f"differs: {sentence}" for sentence in record.differences)
