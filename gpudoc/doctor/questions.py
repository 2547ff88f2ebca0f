"""Answers to a plain question: rows of knowledge/questions.yaml, filled in with the things that the question names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gpudoc.doctor.model import Remedy, Setting
from gpudoc.doctor.remedies import take_steps
from gpudoc.facts.model import Absent
from gpudoc.facts.readers.model import Reading
from gpudoc.knowledge.compatibility import build_for, capability_of, wheel_for
from gpudoc.knowledge.drivers import driver_floor
from gpudoc.knowledge.tables import read_table
from gpudoc.patterns import IGNORECASE, Pattern

_CUDA = Pattern(r"(?i)\bcuda\W{0,2}(?:version |toolkit )?v?(\d{1,2})\.(\d)\b")
_CPUS = Pattern(r"(?i)\b(\d{1,3})[ -]?(?:physical |logical )?(?:cpus?\b|cpu[ -]cores?|cores?\b|核)")
_HAS_BF16 = (8, 0)


def answers_to(reading: Reading, question: str) -> tuple[Remedy, ...]:
    """The tables' answers to a question, or the command that measures it; empty if no row is about such a question.

    Only the question's own words and the title show its subject: the rest of a text names many other things.
    """
    title = next((line.text for line in reading.text.lines if line.text.strip()), "")
    asked = f"{title} {question}"
    words = _words(reading)
    for row in read_table("questions.yaml", "questions"):
        needs = cast(Sequence[str], row.get("needs", ()))
        if all(need in words for need in needs) and Pattern(str(row["asks"]), IGNORECASE).search(asked):
            return take_steps(cast(Sequence[object], row["answer"]), Setting(), words)
    return ()


def _words(reading: Reading) -> dict[str, str]:
    """The things that the question names, with the tables' facts; a word without an answer is left out."""
    words: dict[str, str] = {}
    if (cpus := _CPUS.search(reading.text.flat)) is not None:
        words["cpus"] = cpus[1]
    if (named := _CUDA.search(reading.text.flat)) is not None:
        cuda = (int(named[1]), int(named[2]))
        wheel = wheel_for(None, cuda)
        words |= {"cuda": f"{cuda[0]}.{cuda[1]}", "driver": driver_floor(cuda) or "", "build": build_for(cuda) or ""}
        words["driver_wheel"] = wheel.arguments if wheel is not None else ""
    gpus = reading.machine.gpus
    card = gpus[0].name if not isinstance(gpus, Absent) and gpus else ""
    capability = None if isinstance(card, Absent) else capability_of(card)
    if not isinstance(card, Absent) and capability is not None:
        wheel = wheel_for(capability, None)
        words |= {"card": card, "capability": f"{capability[0]}.{capability[1]}"}
        words["has_bf16" if capability >= _HAS_BF16 else "lacks_bf16"] = "yes"
        if wheel is not None:
            words |= {"card_wheel": wheel.arguments, "card_cuda": f"{wheel.cuda[0]}.{wheel.cuda[1]}"}
    return {word: value for word, value in words.items() if value}
