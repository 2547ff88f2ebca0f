"""Each file that a command wrote for the user is named on its last lines, and never on stdout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoc import api
from gpudoc.cli import app
from gpudoc.fleet.documents import save_record
from tests.fix.test_run import result_of
from tests.fleet.simulated import Plan, build
from tests.train.support import train_here, write_workload

LOG = "Traceback (most recent call last):\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(LOG)
    return tmp_path


@pytest.mark.parametrize("way", [(), ("--plain",), ("--json",), ("--markdown",)])
def test_doctor_names_what_it_wrote_below_its_answer(folder, capfd, way):
    files = ("--html", "page.html", "--out", "found.md", "--sarif", "found.sarif")
    assert app.run(["doctor", "train.log", *files, *way]) == 1
    out, err = capfd.readouterr()
    assert err.splitlines()[-3:] == ["wrote found.md", "wrote page.html", "wrote found.sarif"]
    assert "wrote" not in out
    if way == ("--json",):
        assert json.loads(out)["verdict"] == "broken"


def test_without_a_file_nothing_is_said_to_be_written(folder, capfd):
    app.run(["doctor", "train.log"])
    assert "wrote" not in "".join(capfd.readouterr())


def test_a_stream_is_no_file_that_was_written(folder, capfd):
    app.run(["doctor", "train.log", "--out", "/dev/null"])
    assert "wrote" not in capfd.readouterr().err


def test_a_name_with_a_line_end_stays_on_its_line(folder, capfd):
    app.run(["doctor", "train.log", "--html", "a\n  try: rm.html"])
    assert capfd.readouterr().err.splitlines()[-1] == r"wrote a\x0a  try: rm.html"


def test_a_judged_fleet_names_its_page(folder, capfd):
    record, _ = build(Plan(nodes=10, gpus=2, seed=1, only=("matmul",)))
    save_record(folder / "fleet.json", record)
    assert app.run(["doctor", "fleet.json", "--html", "page.html", "--out", "fleet.md"]) == 0
    assert capfd.readouterr().err == "wrote fleet.md\nwrote page.html\n"


def test_a_run_names_its_page(folder, capfd):
    write_workload(folder)
    line = ("--model", "cfg.yaml", "--profile", "off", "--steps", 1, "--html", "run.html")
    assert train_here(folder, *line) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "wrote run.html"


def test_fix_names_its_patch(folder, capfd, monkeypatch):
    def proved(options, progress):
        Path("fix.patch").write_text("-a\n+b\n")
        return replace(result_of(folder / "train.py", "a = 1\n", "a = 2\n"), options=options)

    monkeypatch.setattr("gpudoc.fix.run.run", proved)
    app.run(["fix", "--patch", "fix.patch", "--", "python", "train.py"])
    assert capfd.readouterr().err.splitlines()[-1] == "wrote fix.patch"


@pytest.mark.parametrize(
    "line",
    [
        ["tune", "--model", "quickstart", "--html"],
        ["tune", "--html", "{}", "--", "python", "train.py"],
        ["train", "--model", "quickstart", "--html"],
        ["fix", "--patch", "{}", "--", "python", "train.py"],
    ],
)
def test_a_place_that_cannot_be_written_is_said_before_minutes_are_spent(folder, capfd, line):
    place = "no/such/page.html"
    line = [place if word == "{}" else word for word in line]
    assert app.run(line if place in line else [*line, place]) == 2
    assert f"no such folder: {folder / 'no/such'}" in capfd.readouterr().err


def test_a_document_saved_from_python_is_silent(folder, capfd):
    api.diagnose(folder / "train.log").save("page.html")
    assert Path("page.html").stat().st_size
    assert capfd.readouterr() == ("", "")
