"""An action runs when its module has been imported, whoever imports it, and at once when it was there already."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from importlib.machinery import ModuleSpec

import pytest

from gpudoc.script.inside._gpudoc_inside import Arrivals, wait_for


@pytest.fixture(autouse=True)
def _finders(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "arriving.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "arriving"
    sys.modules.pop("arriving", None)


def test_a_module_is_whole_when_its_action_runs(module):
    seen = []
    wait_for({module: lambda found: seen.append(found.value)})
    assert seen == []
    found = importlib.import_module(module)
    assert seen == [1]
    assert "exec_module" not in vars(found.__spec__.loader)


def test_a_module_that_is_there_already_is_not_waited_for():
    seen = []
    wait_for({"json": seen.append})
    assert seen == [json]


def test_an_action_runs_once(module):
    seen = []
    wait_for({module: seen.append})
    importlib.reload(importlib.import_module(module))
    assert len(seen) == 1


def test_a_module_that_cannot_be_imported_runs_no_action(tmp_path, monkeypatch):
    (tmp_path / "broken_one.py").write_text("raise RuntimeError('mine')\n")
    monkeypatch.syspath_prepend(tmp_path)
    wait_for({"broken_one": pytest.fail, "not_there_at_all": pytest.fail})
    with pytest.raises(RuntimeError, match="mine"):
        importlib.import_module("broken_one")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("not_there_at_all")


def test_only_what_is_waited_for_is_found():
    assert Arrivals({}).find_spec("json") is None


def test_a_module_that_was_looked_for_first_is_still_waited_for(module):
    """As transformers and accelerate do before they import torch."""
    seen = []
    wait_for({module: seen.append})
    for _ in range(2):
        assert importlib.util.find_spec(module).loader.get_filename(module).endswith("arriving.py")
    found = importlib.import_module(module)
    assert seen == [found]


def test_a_module_that_fails_the_first_time_is_waited_for(tmp_path, monkeypatch):
    (tmp_path / "second_try.py").write_text("import sys\nif not hasattr(sys, 'again'): raise ImportError('first')\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    wait_for({"second_try": seen.append})
    with pytest.raises(ImportError, match="first"):
        importlib.import_module("second_try")
    monkeypatch.setattr(sys, "again", True, raising=False)
    found = importlib.import_module("second_try")
    sys.modules.pop("second_try")
    assert seen == [found]


class Slotted:
    """A loader that takes no attribute."""

    __slots__ = ()

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.value = 1


class Finds:
    """A finder that makes its specs by a function; it asks the others first where it is told to, as tracers do."""

    def __init__(self, make, asks=False):
        self.make, self.asks = make, asks

    def find_spec(self, name, path=None, target=None):
        if self.asks:
            for finder in [other for other in sys.meta_path if other is not self]:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return self.make(name)


class Fixed(ModuleSpec):
    """A spec whose loader cannot be changed."""

    def __setattr__(self, name, value):
        if name == "loader" and hasattr(self, "origin"):
            raise TypeError("fixed")
        super().__setattr__(name, value)


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.delitem(sys.modules, "planted_one", raising=False)

    def plant(make, **how):
        seen = []
        sys.meta_path.insert(0, Finds(make, **how))
        wait_for({"planted_one": seen.append})
        found = importlib.import_module("planted_one")
        sys.modules.pop("planted_one")
        return found, seen

    return plant


def test_a_loader_that_takes_no_attribute_loads_and_is_told_of(planted):
    found, seen = planted(lambda name: ModuleSpec(name, Slotted()))
    assert (seen, found.value, type(found.__loader__)) == ([found], 1, Slotted)
    assert type(found.__spec__.loader) is Slotted


def test_a_finder_that_asks_all_finders_is_not_asked_for_ever(planted):
    found, seen = planted(lambda name: ModuleSpec(name, Slotted()), asks=True)
    assert seen == [found]


def test_a_spec_that_cannot_be_changed_is_imported_as_without_the_hook(planted):
    found, seen = planted(lambda name: Fixed(name, Slotted()))
    assert (found.value, seen) == (1, [])


def test_a_folder_without_a_loader_is_imported_as_without_the_hook(tmp_path, monkeypatch):
    (tmp_path / "planted_two").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    wait_for({"planted_two": pytest.fail})
    found = importlib.import_module("planted_two")
    sys.modules.pop("planted_two")
    assert list(found.__path__) == [str(tmp_path / "planted_two")]
