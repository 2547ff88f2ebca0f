"""SARIF of doctor's reports: at the line of the code or of the log, and nothing that its schema does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoc.cli.app import run

CRASH = """\
Traceback (most recent call last):
  File "/home/alice/proj/train.py", line 41, in <module>
    main()
  File "/home/alice/proj/models/net.py", line 12, in forward
    return self.b(h)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)
"""
# what SARIF 2.1.0 (OASIS, section 3) says of the objects that are written: properties, and those that must be there
OBJECTS = {
    "log": ({"$schema", "version", "runs"}, {"version", "runs"}),
    "run": ({"tool", "invocations", "results", "columnKind"}, {"tool"}),
    "driver": ({"name", "semanticVersion", "rules"}, {"name"}),
    "rule": ({"id", "shortDescription", "fullDescription", "helpUri"}, {"id"}),
    "result": ({"ruleId", "level", "message", "rank", "properties", "locations", "fixes"}, {"message"}),
    "fix": ({"description", "artifactChanges"}, {"artifactChanges"}),
    "artifactChange": ({"artifactLocation", "replacements"}, {"artifactLocation", "replacements"}),
    "replacement": ({"deletedRegion", "insertedContent"}, {"deletedRegion"}),
    "region": ({"startLine", "startColumn", "endLine", "endColumn"}, {"startLine"}),
    "message": ({"text"}, {"text"}),
    "invocation": ({"executionSuccessful"}, {"executionSuccessful"}),
}


def is_object(kind, value):
    known, needed = OBJECTS[kind]
    assert needed <= set(value) <= known, (kind, value)
    return value


def checked(document):
    """The results of a document that holds what the standard asks for."""
    is_object("log", document)
    assert document["version"] == "2.1.0"
    (one,) = document["runs"]
    is_object("run", one)
    driver = is_object("driver", one["tool"]["driver"])
    assert set(one["tool"]) == {"driver"}
    assert one["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    for invocation in one["invocations"]:
        assert isinstance(is_object("invocation", invocation)["executionSuccessful"], bool)
    ids = [is_object("rule", rule)["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:
        assert rule.get("helpUri", "https://").startswith("https://")
        for name in ("shortDescription", "fullDescription"):
            assert name not in rule or is_object("message", rule[name])["text"]
    for result in one["results"]:
        is_object("result", result)
        assert result["ruleId"] in ids
        assert result["level"] in ("none", "note", "warning", "error")
        assert is_object("message", result["message"])["text"]
        assert 0 <= result.get("rank", 0) <= 100
        for location in result.get("locations", ()):
            (place,) = location.values()
            assert set(place) == {"artifactLocation", "region"}
            assert set(place["artifactLocation"]) == {"uri"}
            assert " " not in place["artifactLocation"]["uri"]
            assert place["region"]["startLine"] >= 1
        assert result.get("fixes", True)
        for fix in result.get("fixes", ()):
            check_fix(fix)
    return one["results"]


def check_fix(fix):
    """Section 3.55: at least one file, at least one replacement in each, regions that do not end before they begin."""
    is_object("fix", fix)
    assert is_object("message", fix["description"])["text"]
    assert fix["artifactChanges"]
    for change in fix["artifactChanges"]:
        assert is_object("artifactChange", change)["replacements"]
        assert set(change["artifactLocation"]) == {"uri"}
        for one in change["replacements"]:
            region = is_object("region", is_object("replacement", one)["deletedRegion"])
            start, end = (region["startLine"], region["startColumn"]), (region["endLine"], region["endColumn"])
            assert (1, 1) <= start <= end
            assert set(one["insertedContent"]) == {"text"}


def results_of(tmp_path, *sources):
    run(["doctor", *map(str, sources), "--sarif", str(tmp_path / "out.sarif"), "--plain"])
    return checked(json.loads((tmp_path / "out.sarif").read_text("utf-8")))


def place_of(result):
    place = result["locations"][0]["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("")
    (tmp_path / "test run.log").write_text(CRASH)
    return tmp_path


def test_a_result_is_at_the_line_of_the_code_in_this_checkout(checkout):
    (result,) = results_of(checkout, "test run.log")
    assert (result["ruleId"], result["level"]) == ("shape_mismatch", "error")
    assert place_of(result) == ("models/net.py", 12)
    assert "fix: " in result["message"]["text"]


def test_code_that_is_not_here_is_named_without_its_folder(checkout):
    (checkout / "models" / "net.py").unlink()
    (result,) = results_of(checkout, "test run.log")
    assert place_of(result) == ("net.py", 12)
    assert "alice" not in (checkout / "out.sarif").read_text()


def test_a_log_without_paths_is_its_own_place(checkout):
    (checkout / "test run.log").write_text("step 1\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    result, *_ = results_of(checkout, checkout / "test run.log")
    assert place_of(result) == ("test%20run.log", 2)


def test_what_was_pasted_and_this_machine_have_no_place(checkout):
    (result, *_) = results_of(checkout, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    assert "locations" not in result
    assert all("locations" not in result for result in results_of(checkout, "--quick"))


def test_an_error_that_nothing_explains_is_a_result(checkout):
    (checkout / "odd.log").write_text("FrobnicationError: the flux is inverted\n" * 2)
    results = results_of(checkout, "odd.log")
    assert results
    assert place_of(results[0])[0] == "odd.log"


def test_a_trace_a_fleet_and_a_watched_job_have_none(checkout, capsys):
    (checkout / "trace.json").write_text(json.dumps({"traceEvents": [], "schemaVersion": 1}))
    for asked in (["--pid", "1"], ["--", "true"], ["trace.json"]):
        options = ["--sarif", "x.sarif"]
        assert run(["doctor", *options, *asked]) == 2
        assert "--sarif works for texts and this machine" in capsys.readouterr().err
    assert not Path("x.sarif").exists()
