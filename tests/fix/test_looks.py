"""What a look at a real script comes to."""

import shutil
import sys
from pathlib import Path

import pytest

from gpudoc.fix.evidence import read_evidence
from gpudoc.fix.launches import FixLaunches
from gpudoc.script.command import checked
from gpudoc.script.trial import Launches

SCRIPTS = Path(__file__).parent / "scripts"


def looked(folder, monkeypatch, name, **asked):
    shutil.copy(SCRIPTS / f"{name}.py", folder / f"{name}.py")
    monkeypatch.chdir(folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    launches = Launches(command=checked((sys.executable, f"{name}.py")), scratch=scratch, isolated=False)
    told = FixLaunches(launches=launches).look(**{"seconds": 0.0, "evaluation_s": 0.0, "patience_s": 300, **asked})
    return read_evidence(told, None, None)


@pytest.mark.slow
def test_a_look_goes_on_until_the_steps_come_to_the_evaluation_that_the_source_holds(tmp_path, monkeypatch):
    seen = looked(tmp_path, monkeypatch, "late_evaluation", evaluation_s=300)
    text = (tmp_path / "late_evaluation.py").read_text().splitlines()
    assert [text[line - 1].strip()[:10] for _, line in seen.no_backward_at] == ["correct +="]
    assert (seen.evaluated_after, seen.awaits_evaluation) == (80, False)


@pytest.mark.slow
def test_a_look_that_ends_before_the_evaluation_says_so(tmp_path, monkeypatch):
    seen = looked(tmp_path, monkeypatch, "late_evaluation")
    assert (seen.no_backward_at, seen.evaluated_after, seen.awaits_evaluation) == ((), None, True)
