"""Every rewrite changes its scripts byte for byte as it should, and leaves alone those where it would be wrong."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import subprocess

import pytest

from gpudoc.fix.model import Candidate, Refusal, RunEvidence
from gpudoc.fix.propose import propose, propose_in
from gpudoc.fix.rewrites import REWRITES
from gpudoc.fix.source import parse_source, unified_diff
from tests.fix.scripts_of_rewrites import CHANGED, REFUSED, evidence_of, name_of

BY_ID = {rewrite.id: rewrite for rewrite in REWRITES}


@functools.cache
def all_proposed(script):
    """What every rewrite says of the script, worked out once for all tests that read it."""
    return tuple(propose(script.path, script.evidence))


def proposed(script, kind):
    return [one for one in all_proposed(script) if isinstance(one, kind) and one.rewrite == script.rewrite]


@pytest.mark.parametrize("script", CHANGED, ids=name_of)
def test_the_script_becomes_what_stands_next_to_it(script):
    (found,) = proposed(script, Candidate)
    after = script.path.with_name(script.path.name.replace("before", "after"))
    assert found.before == script.path.read_bytes().decode()
    assert found.after == (after.read_bytes().decode() if after.exists() else found.before)
    assert found.environment or after.exists()
    assert found.claim == BY_ID[script.rewrite].claim


@pytest.mark.parametrize("script", CHANGED, ids=name_of)
def test_a_second_pass_finds_nothing(script):
    after = script.path.with_name(script.path.name.replace("before", "after"))
    if not after.exists():
        pytest.skip("nothing of the source changes")
    (found,) = proposed(script, Candidate)
    # the lines that the first line names are sought in the changed text; where they are gone, at the same number
    text = after.read_bytes().decode()
    head = text.splitlines()[0].lstrip("# ")
    try:
        evidence = evidence_of(script.path, text, head)
    except AssertionError:
        evidence = script.evidence
    seen = [evidence]
    if evidence.keeps_at:
        everywhere = tuple((script.path, n) for n in range(1, text.count("\n") + 2))
        seen.append(dataclasses.replace(evidence, keeps_at=everywhere))
    for one in seen:
        again = propose_in(parse_source(script.path, text.encode()), one)
        assert not [two for two in again if isinstance(two, Candidate) and two.rewrite == found.rewrite]


@pytest.mark.parametrize("script", CHANGED, ids=name_of)
def test_patch_takes_the_diff_forth_and_back(script, tmp_path):
    patch = shutil.which("patch")
    if patch is None:
        pytest.skip("there is no patch here")
    (found,) = proposed(script, Candidate)
    if found.environment:
        pytest.skip("nothing of the source changes")
    file = tmp_path / "train.py"
    file.write_bytes(found.before.encode())
    diff = unified_diff("train.py", found.before, found.after)
    subprocess.run([patch, "-p1", "--binary"], input=diff, cwd=tmp_path, check=True, capture_output=True)
    assert file.read_bytes() == found.after.encode()
    subprocess.run([patch, "-p1", "-R", "--binary"], input=diff, cwd=tmp_path, check=True, capture_output=True)
    assert file.read_bytes() == found.before.encode()


@pytest.mark.parametrize("script", CHANGED, ids=name_of)
def test_nothing_is_changed_without_evidence(script):
    assert propose(script.path, RunEvidence(hot=())) == []


@pytest.mark.parametrize("script", CHANGED, ids=name_of)
def test_windows_line_endings_and_a_byte_order_mark_stay(script):
    def windows(text: str) -> bytes:
        return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()

    (found,) = proposed(script, Candidate)
    source = parse_source(script.path, windows(found.before))
    again = [one for one in propose_in(source, script.evidence) if isinstance(one, Candidate)]
    (changed,) = [one for one in again if one.rewrite == script.rewrite]
    assert changed.after.encode() == windows(found.after)


@pytest.mark.parametrize("script", REFUSED, ids=name_of)
def test_a_trap_is_refused_with_its_reason(script):
    compile(script.path.read_text("utf-8"), str(script.path), "exec")
    assert not proposed(script, Candidate)
    if not script.refusal:
        assert not proposed(script, Refusal)
        return
    assert [one for one in proposed(script, Refusal) if script.refusal in one.reason], proposed(script, Refusal)


@pytest.mark.parametrize("script", REFUSED, ids=name_of)
def test_a_trap_is_left_alone_by_all_other_rewrites_that_may_be_written(script):
    assert not [one for one in all_proposed(script) if isinstance(one, Candidate)]


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.id)
def test_each_rewrite_has_a_script_and_a_trap(rewrite):
    assert rewrite.id in {script.rewrite for script in CHANGED}
    assert rewrite.id in {script.rewrite for script in REFUSED}


def test_no_rewrite_has_the_id_or_the_number_of_another():
    assert len({rewrite.id for rewrite in REWRITES}) == len({rewrite.number for rewrite in REWRITES}) == len(REWRITES)
    assert {script.rewrite for script in CHANGED + REFUSED} <= set(BY_ID)
