"""The user's own line is found behind whatever package stands between it and torch."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from gpudoc.script.inside._gpudoc_inside.loaders import find_place, is_users


def package(tmp_path, monkeypatch, name, text):
    folder = tmp_path / "site-packages"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    # the real one may be installed here, and imported by now: the name is put back as it was, or absent
    monkeypatch.setitem(sys.modules, name, None)
    del sys.modules[name]
    return __import__(name)


def test_the_line_that_calls_is_the_place():
    line = sys._getframe().f_lineno + 1
    place = find_place()
    assert (place.file, place.line, place.through) == (__file__, line, "torch")
    assert place.short == f"test_place.py:{line}"
    assert place.lines[0] == place.short


def test_a_framework_between_is_named_and_the_line_stays_the_users(tmp_path, monkeypatch):
    inner = package(tmp_path, monkeypatch, "accelerate", "def build(call): return call()")
    outer = package(tmp_path, monkeypatch, "transformers", "def train(build, call): return build(call)")
    assert inner.build(find_place).through == "accelerate"
    place = outer.train(inner.build, find_place)
    assert (place.through, place.file) == ("transformers", __file__)


def test_a_function_that_builds_loaders_is_told_by_who_calls_it():
    def build():
        return find_place()

    first = build()
    second = build()
    assert first.short == second.short
    assert first.lines != second.lines


def test_installed_packages_and_python_itself_are_not_the_users():
    assert is_users("/home/me/train.py")
    assert is_users("<string>")
    assert not is_users("/opt/env/lib/python3.11/site-packages/timm/data/loader.py")
    assert not is_users(str(Path(sysconfig.get_paths()["stdlib"], "runpy.py")))
    assert not is_users("<frozen runpy>")
