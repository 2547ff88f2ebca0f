"""Each allocator has its environment, under the name that every torch reads, beside what the user set."""

import pytest

from gpudoc.process.allocator import EXPANDABLE, MALLOC, missing_environment

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


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


GC = "garbage_collection_threshold:0.8"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {OLD: EXPANDABLE}),
        ({OLD: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
        ({OLD: EXPANDABLE}, {}),
        ({OLD: f"{GC},expandable_segments:False"}, {}),
        # torch reads the old name first, so that what was said under the new one goes along
        ({NEW: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
        ({OLD: "", NEW: GC}, {OLD: f"{GC},{EXPANDABLE}"}),
        # torch 2.9 does not take it from the new name
        ({NEW: f"{EXPANDABLE},{GC}"}, {OLD: f"{EXPANDABLE},{GC}"}),
    ],
)
def test_expandable_segments_are_added_to_what_the_user_set(given, wanted):
    found = missing_environment("expandable", "cuda", given=given)
    assert found == wanted
    assert missing_environment("expandable", "cuda", given={**given, **found}) == {}
