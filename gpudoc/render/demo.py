"""The screens of `gpudoc demo`: the list of failures, and one failure above doctor's answer."""

from __future__ import annotations

from gpudoc.doctor.examine import examine_text
from gpudoc.knowledge.failures import FAILURES, Failure
from gpudoc.render import doctor
from gpudoc.render.frame import Form


def render_list() -> str:
    """Every failure with its number and name, and how to see one."""
    rows = [f"  {number}  {one.name:8}{one.title}" for number, one in enumerate(FAILURES, 1)]
    ways = "next: gpudoc demo wheel · gpudoc demo --all"
    return "\n".join([f"{len(FAILURES)} failures, and doctor's answer to each:", "", *rows, "", ways]) + "\n"


def render_question(failure: Failure) -> str:
    """The failure's text, and the command that asks about it."""
    title = f"– {FAILURES.index(failure) + 1} of {len(FAILURES)}: {failure.title}"
    pasted = f"gpudoc demo {failure.name} --text | gpudoc doctor -"
    asked = "gpudoc doctor -- python train.py" if failure.is_job else pasted
    text = [f"  {line}".rstrip() for line in failure.text.splitlines()]
    return "\n".join([title, "", *text, "", f"  $ {asked}"]) + "\n"


def render_answer(failure: Failure, shape: Form) -> str:
    """Doctor's present answer to the failure's text."""
    report = examine_text([("stdin", failure.text.encode())])
    return doctor.render(report, width=shape.width, boxed=shape.boxed)
