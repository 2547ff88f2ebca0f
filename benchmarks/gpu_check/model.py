"""What a step is, what came of it, and the record of a whole run as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

SCHEMA = "gpudoc.gpu_check.v1"
# what a program that fails says of it: torch's advice, its warnings and call stacks may follow
ERROR = re.compile(r"[\w.]*(Error|Exception)\b.{0,40}:|gpudoc: ")
State = Literal["passed", "failed", "cut", "left out", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What gpudoc takes a number to be, and what the card says; `guessed` is None where gpudoc has no number.

    `low` and `high` bound the ratio, measured by guessed, that passes.
    """

    name: str
    measured: float
    guessed: float | None
    unit: str = "MiB"
    low: float = 0.9
    high: float = 1.1

    @property
    def ratio(self) -> float | None:
        """Measured by guessed; None where there is no guess."""
        return self.measured / self.guessed if self.guessed else None

    @property
    def is_right(self) -> bool:
        """Whether the ratio is within its bounds; without a guess there is nothing to be wrong."""
        return self.ratio is None or self.low <= self.ratio <= self.high

    def sentence(self) -> str:
        """The comparison in words."""
        if self.guessed is None or self.ratio is None:
            return f"{self.name}: {self.measured:.5g} {self.unit} measured, and gpudoc has no figure for it"
        return (
            f"{self.name}: gpudoc expects {self.guessed:.5g} {self.unit}, the card says {self.measured:.5g} "
            f"{self.unit} (ratio {self.ratio:.3f}, allowed {self.low:g} to {self.high:g})"
        )


@dataclass(kw_only=True)
class Result:
    """What one step found: comparisons, sentences about what is wrong, and facts by name."""

    comparisons: list[Comparison] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    facts: dict[str, str | float] = field(default_factory=dict)

    def to_line(self) -> str:
        """One line of JSON, the last one that a check prints."""
        return json.dumps(asdict(self))

    @classmethod
    def from_output(cls, output: str) -> Result:
        """What `to_line` wrote; ValueError where the last line is something else."""
        lines = output.strip().splitlines()
        found = json.loads(lines[-1]) if lines else None
        if not isinstance(found, dict) or found.keys() != {"comparisons", "failures", "facts"}:
            raise ValueError("the last line is not a result")
        return cls(**{**found, "comparisons": [Comparison(**row) for row in found["comparisons"]]})


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the process of a step ended by itself."""

    status: int
    output: str
    errors: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """One part of the plan. `judge` makes a `Result` of how `command` ended; `undo` runs whatever happened.

    `absent` says why the step cannot run on this machine, '' where it can. What is repeated runs once more at the end.
    """

    name: str
    command: Sequence[str]
    limit_s: float
    judge: Callable[[Ended], Result]
    absent: str = ""
    undo: Sequence[Sequence[str]] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    is_repeated: bool = False
    keeps_output: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a step: `sentences` say what is wrong or why it was left out, `output` is kept where it failed."""

    step: str
    state: State
    seconds: float = 0.0
    sentences: Sequence[str] = ()
    comparisons: Sequence[Comparison] = ()
    facts: Mapping[str, str | float] = field(default_factory=dict)
    output: str = ""


@dataclass(kw_only=True)
class Record:
    """A whole run. `machine` names the card and what is around it, never the host."""

    machine: dict[str, str | float]
    gpudoc: str
    commit: str
    began: str
    is_quick: bool = False
    is_standin: bool = False
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        """The names of the steps that failed, were cut or were stopped."""
        return [one.step for one in self.outcomes if one.state in ("failed", "cut", "stopped")]

    def to_text(self) -> str:
        """The record as JSON, with the ratios written out."""
        document = {"schema": SCHEMA, **asdict(self)}
        for outcome, kept in zip(document["outcomes"], self.outcomes, strict=True):
            for row, comparison in zip(outcome["comparisons"], kept.comparisons, strict=True):
                row["ratio"] = comparison.ratio and round(comparison.ratio, 4)
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path) -> Record:
        """What `to_text` wrote; ValueError where the file holds something else."""
        document = json.loads(path.read_text("utf-8"))
        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} is not a record of gpu-check")
        for outcome in document["outcomes"]:
            for row in outcome["comparisons"]:
                del row["ratio"]
            outcome["comparisons"] = [Comparison(**row) for row in outcome["comparisons"]]
        document["outcomes"] = [Outcome(**row) for row in document["outcomes"]]
        return cls(**document)


def error_line(text: str) -> str:
    """The last line that names an error, else the last one; '' where there is none. Short enough for a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if ERROR.match(line)]
    return (named or lines)[-1][:300] if lines else ""
