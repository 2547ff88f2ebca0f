"""`gpudoc check`, the hook that runs it, and the matchers that editors read its lines with."""

import json
import re
import shutil
from pathlib import Path

import pytest
import typer.main
import yaml

from gpudoc.cli.app import application, run

ROOT = Path(__file__).resolve().parents[2]
WRONG = 'model: {target: "a.b:c"}\ndat: 3\ntrain: {epochs: x}\n'


def matcher(owner):
    found = json.loads((ROOT / "docs" / "recipes" / "problem-matcher.json").read_text())["problemMatcher"]
    (pattern,) = next(one for one in found if one["owner"] == owner)["pattern"]
    return pattern


def test_every_mistake_of_every_file_is_named_with_its_line(tmp_path, capsys):
    (tmp_path / "cfg.yaml").write_text(WRONG)
    (tmp_path / "torn.yaml").write_text("model: [")
    (tmp_path / "profile.yaml").write_text("schema: gpudoc.profile.v1\nsettings: 3\n")
    assert run(["check", *(str(path) for path in sorted(tmp_path.iterdir()))]) == 2
    said = capsys.readouterr().err
    assert "cfg.yaml:2: unknown key 'dat'; did you mean 'data'?" in said
    assert "cfg.yaml:3: train.epochs" in said
    assert "torn.yaml:" in said
    assert "profile.yaml" in said
    pattern = matcher("gpudoc-check")
    found = [match for line in said.splitlines() if (match := re.match(pattern["regexp"], line))]
    assert ("2", "unknown key 'dat'; did you mean 'data'?") in [
        (m[pattern["line"]], m[pattern["message"]]) for m in found
    ]


@pytest.mark.parametrize("preset", sorted((ROOT / "profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_right_passes_and_imports_nothing(preset, tmp_path, capsys):
    shutil.copy(preset, tmp_path / "p.yaml")
    (tmp_path / "cfg.yaml").write_text('model: {target: "nowhere.at:all"}\ndata: {target: "nowhere.at:all"}\n')
    assert run(["check", str(tmp_path / "p.yaml"), str(tmp_path / "cfg.yaml")]) == 0
    assert capsys.readouterr().out == "No mistake in 2 files.\n"


def test_the_hook_runs_a_command_that_there_is():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, command = hook["entry"].split()
    assert program == "gpudoc"
    assert command in typer.main.get_command(application()).commands
    for name, taken in (
        ("cfg.yaml", True),
        ("jobs/cfg-large.yml", True),
        (".gpudoc/profiles/a.yaml", True),
        ("x.yaml", False),
    ):
        assert bool(re.search(hook["files"], name)) is taken


def test_an_editor_finds_the_line_that_doctor_names(tmp_path, capsys):
    log = 'Traceback (most recent call last):\n  File "/a/net.py", line 12, in f\n    self.b(h)\n'
    (tmp_path / "log").write_text(log + "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)\n")
    run(["doctor", str(tmp_path / "log"), "--plain"])
    pattern = matcher("gpudoc")
    (match,) = [m for line in capsys.readouterr().out.splitlines() if (m := re.match(pattern["regexp"], line))]
    assert (match[pattern["file"]], match[pattern["line"]]) == ("net.py", "12")


def test_json_is_one_document_of_all_files_with_a_list_of_mistakes_for_each(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("classes: 4\n")
    shutil.copy(ROOT / "gpudoc" / "workload" / "builtin" / "quickstart.yaml", tmp_path / "good.yaml")
    assert run(["check", "bad.yaml", "good.yaml", "none.yaml", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "gpudoc.check.v1"
    bad, good, none = found["files"]
    assert (bad["file"], good, none["mistakes"]) == (
        "bad.yaml",
        {"file": "good.yaml", "mistakes": []},
        ["none.yaml: no such config file"],
    )
    assert any("unknown key 'classes'" in line for line in bad["mistakes"])
    assert not any("mistakes in" in line for line in bad["mistakes"])
    assert run(["check", "good.yaml", "--json"]) == 0
