"""What ended a script is told from inside, and it ends as it would have ended alone."""

from __future__ import annotations

import sys

import pytest

import gpudoc.script.inside._gpudoc_inside as inside
from gpudoc.process.shortage import Shortage
from tests.script.watched import bare, save, watch

FAILS = """
class Bad(Rows):
    def __getitem__(self, i):
        if i == 9: raise KeyError("sample 9")
        return super().__getitem__(i)

try:
    for x, y in DataLoader(Bad(), 4):
        step(x, y)
except KeyError as problem:
    raise RuntimeError("no luck") from problem
"""


def test_a_script_that_fails_fails_as_it_did(tmp_path):
    command = [sys.executable, save(tmp_path, FAILS)]
    alone, watched = bare(command), watch(tmp_path, command)
    assert (watched.code, watched.out, watched.err) == (alone.returncode, alone.stdout, alone.stderr)
    (seen,) = watched.seen
    assert [link.types[0] for link in seen.error.chain] == ["RuntimeError", "KeyError"]
    assert seen.error.text == "RuntimeError: no luck"
    assert seen.error.shortage is None
    assert (seen.total.steps, seen.end.steps) == (2, 2)


def test_running_out_of_memory_is_told(tmp_path):
    watched = watch(tmp_path, [sys.executable, save(tmp_path, "step(torch.zeros(2, 4), 0)\ntorch.empty(1 << 60)")])
    assert watched.code == 1
    (seen,) = watched.seen
    assert seen.error.shortage is Shortage.HOST
    assert "torch.empty(1 << 60)" in seen.error.traceback
    assert seen.total.steps == 1


def test_links_and_long_texts():
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("x" * 9000 + "\nend") from None
    except ValueError as problem:
        told = inside.describe(problem)
    (link,) = told["chain"]
    assert link["types"][0] == "ValueError"
    assert len(link["text"]) < 5000
    assert link["text"].endswith("end")


def test_an_exception_that_leads_to_itself_ends():
    first, second = KeyError(), ValueError()
    first.__context__, second.__context__ = second, first
    assert inside.links(first) == [first, second]


def test_the_hooks_own_frames_are_taken_out_of_a_traceback():
    def fail():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        fail()
    clean = inside.without_own(caught.value.__traceback__)
    assert clean is caught.value.__traceback__
    assert clean.tb_next.tb_frame.f_code.co_name == "fail"
