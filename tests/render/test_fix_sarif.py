"""What fix proved as SARIF: at the line of the cause, with a change that an editor can apply to the file as it was."""

import json
from dataclasses import replace

import pytest

from gpudoc.errors import GpudocError
from gpudoc.fix.model import Candidate, Claim
from gpudoc.fix.proof import FixProof, GainSpan
from gpudoc.render import fix_page, fix_sarif
from gpudoc.render.fix_sarif import line_before, render_fix_sarif, replacements
from tests.fix.test_run import result_of
from tests.render.test_sarif import checked, place_of

BEFORE = "import torch\ntorch.autograd.set_detect_anomaly(True)\nloss.backward(retain_graph=True)\nx = '😀'; y = 1\n"
WITHOUT = BEFORE.replace("torch.autograd.set_detect_anomaly(True)\n", "")


def applied(text, changes):
    """The text after an editor made these replacements, the last one first."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def offset(line, column):
        if line > len(lines):
            return len(text)
        units = lines[line - 1].encode("utf-16-le")[: 2 * (column - 1)]
        return starts[line - 1] + len(units.decode("utf-16-le"))

    for one in reversed(changes):
        region = one["deletedRegion"]
        start = offset(region["startLine"], region["startColumn"])
        end = offset(region["endLine"], region["endColumn"])
        text = text[:start] + one["insertedContent"]["text"] + text[end:]
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE, WITHOUT),
        (BEFORE, BEFORE.replace("retain_graph=True", "")),
        (BEFORE, BEFORE.replace("y = 1", "y = 2")),
        (WITHOUT, BEFORE),
        ("a\nb", "a\nb\nc"),
        ("a\nb\nc", "a"),
        ("a = 1\r\nb = 2\r\n", "a = 1\r\nc = 3\r\nb = 2\r\n"),
        ("a = 1\r\nb = 2\r\n", "b = 2\r\n"),
        ("x\n", "@no_grad()\nx\n"),
    ],
)
def test_the_replacements_make_the_changed_file_of_the_one_that_was_there(before, after):
    assert applied(before, list(replacements(before, after))) == after


def test_a_replacement_is_as_small_as_it_can_be():
    (one,) = replacements(BEFORE, BEFORE.replace("y = 1", "y = 2"))
    # the smiley is two units of UTF-16
    assert one["deletedRegion"] == {"startLine": 4, "startColumn": 15, "endLine": 4, "endColumn": 16}
    assert one["insertedContent"] == {"text": "2"}


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my train.py"
    path.write_text(BEFORE)
    return path


def proved(script):
    found = result_of(script, BEFORE, WITHOUT)
    proof = replace(
        found.accepted[0], candidate=replace(found.accepted[0].candidate, line=2), gain=GainSpan(1.5, 1.4, 1.6), steps=9
    )
    return replace(found, accepted=(proof,))


def test_a_proved_change_is_a_result_at_its_line_with_its_fix(script):
    (result,) = checked(render_fix_sarif(proved(script), script.parent))
    assert (result["ruleId"], result["level"]) == ("anomaly-off", "warning")
    assert place_of(result) == ("my%20train.py", 2)
    assert "1.50 times as fast (1.40 to 1.60)" in result["message"]["text"]
    assert result["properties"] == {"claim": "exact", "gain": [1.5, 1.4, 1.6]}
    ((change,),) = (fix["artifactChanges"] for fix in result["fixes"])
    assert change["artifactLocation"]["uri"] == "my%20train.py"
    assert applied(BEFORE, change["replacements"]) == WITHOUT


def test_what_is_not_proved_is_neither_a_result_nor_a_fix(script):
    found = replace(proved(script), accepted=(), lost=proved(script).accepted, after={script: BEFORE})
    assert checked(render_fix_sarif(found, script.parent)) == []


def test_several_changes_are_one_fix_and_each_is_at_its_line_of_the_file_as_it_was(script):
    after = WITHOUT.replace("retain_graph=True", "")
    second = Candidate("retain-graph", script, 2, Claim.EXACT, WITHOUT, after)
    first = proved(script)
    found = replace(
        first,
        accepted=(*first.accepted, FixProof(candidate=second, claim=Claim.EXACT, why="", steps=9)),
        after={script: after},
    )
    one, two = checked(render_fix_sarif(found, script.parent))
    assert (place_of(one)[1], place_of(two)[1]) == (2, 3)
    assert "fixes" not in two
    assert applied(BEFORE, one["fixes"][0]["artifactChanges"][0]["replacements"]) == after


def test_a_line_that_a_change_wrote_is_where_the_change_is():
    assert line_before("a\nb\n", "a\nnew\nb\n", 3) == 2
    assert line_before("a\nb\n", "a\nnew\nb\n", 2) in (1, 2)


def test_variables_to_start_with_are_no_fix_of_a_file(script):
    candidate = Candidate(
        "expandable-segments", script, 3, Claim.EXACT, BEFORE, BEFORE, environment=(("PYTORCH_X", "a:1"),)
    )
    first = proved(script)
    proof = replace(first.accepted[0], candidate=candidate)
    (result,) = checked(render_fix_sarif(replace(first, accepted=(proof,), before={}, after={}), script.parent))
    assert "PYTORCH_X=a:1" in result["message"]["text"]
    assert "fixes" not in result


def test_names_leave_the_messages_and_the_code_stays_what_it_is(script, monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice.b")
    found = proved(script)
    after = BEFORE.replace("y = 1", "api_key = 'abcdefgh12345678'")
    candidate = replace(found.accepted[0].candidate, after=after, besides=("Reads /home/alice.b/x.",))
    found = replace(found, accepted=(replace(found.accepted[0], candidate=candidate),), after={script: after})
    fix_sarif.save(script.with_name("out.sarif"), found)
    text = script.with_name("out.sarif").read_text("utf-8")
    assert "alice" not in text
    (result,) = checked(json.loads(text))
    assert applied(BEFORE, result["fixes"][0]["artifactChanges"][0]["replacements"]) == after
    with pytest.raises(GpudocError):
        fix_sarif.save(script.parent / "none" / "out.sarif", found)


def test_the_page_shows_what_is_proved_what_was_tried_and_what_was_not(script):
    found = proved(script)
    text = fix_page.render_page(replace(found, lost=(replace(found.accepted[0], why="it is slower"),)))
    assert "<h1>gpudoc fix</h1>" in text
    assert "-torch.autograd.set_detect_anomaly(True)" in text
    assert "it is slower" in text
    assert "No change found" in fix_page.render_page(replace(found, accepted=(), after={script: BEFORE}))
