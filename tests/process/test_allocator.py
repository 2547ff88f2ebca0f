"""Each allocator has its environment, under the name that the installed torch reads, and keeps what the user set."""

import subprocess
import sys

import pytest

from gpudoc.process import allocator
from gpudoc.process.allocator import EXPANDABLE, MALLOC, missing_environment

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


def installed(monkeypatch, release):
    monkeypatch.setattr(allocator, "version", lambda name: release)


def test_the_exact_allocator_asks_for_what_is_still_missing(monkeypatch):
    assert missing_environment("exact", given={}) == MALLOC
    assert missing_environment("exact", given=MALLOC) == {}
    assert missing_environment("exact", given={**MALLOC, "MALLOC_ARENA_MAX": "8"}) == {"MALLOC_ARENA_MAX": "1"}
    for name in MALLOC:
        monkeypatch.delenv(name, raising=False)
    assert missing_environment("exact") == MALLOC


def test_an_allocator_of_another_device_asks_for_nothing():
    assert missing_environment("exact", "cuda", given={}) == {}
    assert missing_environment("expandable", "cpu", given={}) == {}
    assert missing_environment("expandable", "cuda", given={})
    assert missing_environment("default", "cpu", given={}) == missing_environment("default", given={}) == {}


@pytest.mark.parametrize(
    ("release", "name"), [("2.6.0+cu124", OLD), ("2.9.1", OLD), ("2.10.0", OLD), ("2.11.0", NEW), ("2.13.0+cpu", NEW)]
)
def test_the_name_is_the_one_that_this_torch_takes_expandable_segments_from(monkeypatch, release, name):
    installed(monkeypatch, release)
    assert missing_environment("expandable", given={}) == {name: EXPANDABLE}


def test_without_torch_or_with_a_strange_one_it_is_the_name_that_all_of_them_read(monkeypatch):
    installed(monkeypatch, "git-abc")
    assert set(missing_environment("expandable", given={})) == {OLD}

    def absent(name):
        raise allocator.PackageNotFoundError(name)

    monkeypatch.setattr(allocator, "version", absent)
    assert set(missing_environment("expandable", given={})) == {OLD}


GC = "garbage_collection_threshold:0.8"


@pytest.mark.parametrize(
    ("release", "given", "wanted"),
    [
        ("2.13.0", {NEW: GC}, {NEW: f"{GC},{EXPANDABLE}"}),
        # torch reads the old name where both are set, even when it is empty
        ("2.13.0", {OLD: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
        ("2.13.0", {OLD: "", NEW: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
        ("2.13.0", {NEW: EXPANDABLE}, {}),
        ("2.13.0", {OLD: f"{GC},expandable_segments:False"}, {}),
        ("2.9.1", {OLD: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
        # set under a name that this torch does not take it from
        ("2.9.1", {NEW: EXPANDABLE}, {OLD: EXPANDABLE}),
        ("2.9.1", {NEW: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
    ],
)
def test_what_the_user_set_stays(monkeypatch, release, given, wanted):
    installed(monkeypatch, release)
    found = missing_environment("expandable", "cuda", given=given)
    assert found == wanted
    assert missing_environment("expandable", "cuda", given={**given, **found}) == {}


def test_torch_is_not_imported_to_learn_its_release():
    code = "import sys; from gpudoc.process.allocator import missing_environment as m; m('expandable', given={}); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
