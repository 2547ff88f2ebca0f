"""The way in: the user's own sitecustomize runs as before, and without gpudoc's variable nothing is there at all."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.script.hook import FOLDER, INSIDE
from tests.script.watched import bare_environment

SHOW = """
import sys
print("_gpudoc_inside" in sys.modules, any("gpudoc" in type(finder).__module__ for finder in sys.meta_path))
print(any(entry.endswith("script/inside") for entry in sys.path), getattr(sys, "mine", None))
"""


def run(told, *, path="", flags=(), code=SHOW, python=sys.executable):
    """A Python with the inside on its path: what it prints, what it complains of, its exit code."""
    variables = {**bare_environment(), "PYTHONPATH": os.pathsep.join([str(INSIDE), *filter(None, [path])])}
    if told is not None:
        variables[FOLDER] = str(told)
    command = [python, *flags, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return done.stdout.split(), done.stderr, done.returncode


@pytest.fixture
def told(tmp_path):
    folder = tmp_path / "told"
    folder.mkdir()
    (folder / "order.json").write_text('{"purpose": "look"}')
    return folder


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys; sys.mine = 'here'")
    return folder


def test_the_hook_waits_where_a_folder_asks_for_it(told):
    assert run(told) == (["True", "True", "False", "None"], "", 0)


def test_without_the_variable_nothing_is_there():
    assert run(None) == (["False", "False", "False", "None"], "", 0)


def test_where_the_folder_is_gone_or_holds_no_order_nothing_is_there_and_nothing_is_said(tmp_path):
    assert run(tmp_path / "gone") == (["False", "False", "False", "None"], "", 0)
    assert run(tmp_path) == (["False", "False", "False", "None"], "", 0)


def test_the_users_own_sitecustomize_runs_as_before(told, mine):
    assert run(told, path=str(mine)) == (["True", "True", "False", "here"], "", 0)
    assert run(None, path=str(mine))[0][-1] == "here"


def test_a_fault_in_the_users_own_is_told_as_python_tells_it(told, mine):
    (mine / "sitecustomize.py").write_text("raise KeyError('mine')")
    out, err, code = run(told, path=str(mine))
    assert out == ["True", "True", "False", "None"]
    assert code == 0
    assert "Error in sitecustomize" in err
    assert "KeyError: 'mine'" in err


def test_a_python_that_ignores_its_environment_is_left_alone(told):
    assert run(told, flags=("-I",)) == (["False", "False", "False", "None"], "", 0)


def test_another_module_is_imported_as_without_the_hook(told):
    code = "import colorsys, this_is_not_there"
    assert run(told, code=code)[1].endswith("ModuleNotFoundError: No module named 'this_is_not_there'\n")


def older_pythons():
    """The interpreters of this machine that are too old for the hook."""
    names = [f"python{version}" for version in ("2.7", "3.5", "3.6", "3.7")]
    places = [shutil.which(name) for name in names] + sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    found = {}
    for place in filter(None, places):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([place, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0 and tuple(map(int, done.stdout.split("."))) < (3, 8):
            found[done.stdout.strip()] = str(place)
    return found


def test_a_python_that_is_too_old_runs_as_without_the_hook(told, mine):
    older = older_pythons()
    if not older:
        pytest.skip("no Python before 3.8 is installed")
    code = "import sys; print(any(p.endswith('script/inside') for p in sys.path)); print(getattr(sys, 'mine', None))"
    for version, python in older.items():
        assert run(told, code=code, python=python) == (["False", "None"], "", 0), version
        assert run(told, code=code, python=python, path=str(mine)) == (["False", "here"], "", 0), version


def test_the_way_in_is_understood_by_every_python():
    """What none but a newer Python reads: annotations, f-strings, a future of 3.7, imports that 2.7 has not."""
    tree = ast.parse((INSIDE / "sitecustomize.py").read_text(encoding="utf-8"), feature_version=(3, 4))
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.AnnAssign, ast.JoinedStr, ast.NamedExpr))]
    assert not [node for node in ast.walk(tree) if getattr(node, "annotation", None) or getattr(node, "returns", None)]
    assert {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names} == {"os", "sys"}
    assert not [node for node in tree.body if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("source", sorted(INSIDE.rglob("*.py")), ids=lambda path: path.name)
def test_what_runs_in_the_users_python_is_understood_by_python_3_8(source):
    ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 8))
