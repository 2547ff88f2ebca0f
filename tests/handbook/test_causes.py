"""Every cause has a page, and what the page shows as its message is what doctor takes for it."""

import re

import pytest

from gpudoc.doctor.examine import examine_text
from gpudoc.doctor.model import Setting
from gpudoc.doctor.registry import CATALOGUE
from tools.handbook.causes import cause_pages, messages_of, neighbours_of, other_messages, place_of

PAGES = {page.place: page for page in cause_pages()}
HEADINGS = (
    "## The message",
    "## How gpudoc finds it",
    "## What it is not",
    "## Fix",
    "## Sources",
    "## In the terminal",
)


def test_every_cause_has_a_page_with_every_part():
    assert PAGES.keys() == {"causes/index.md", *map(place_of, CATALOGUE)}
    for cause_id in CATALOGUE:
        text = PAGES[place_of(cause_id)].text
        assert [line for line in text.splitlines() if line.startswith("## ")] == list(HEADINGS), cause_id
        for heading, body in zip(HEADINGS, re.split("^## .*$", text, flags=re.M)[1:], strict=True):
            assert body.strip(), f"{cause_id}: nothing under {heading}"


def test_the_index_leads_to_every_cause():
    linked = re.findall(r"\]\(([a-z0-9_]+)\.md\)", PAGES["causes/index.md"].text)
    assert sorted(linked) == sorted(CATALOGUE)


@pytest.mark.parametrize("cause_id", other_messages())
def test_a_message_that_no_row_holds_is_judged_to_be_the_cause_of_its_page(cause_id):
    assert cause_id in CATALOGUE
    report = examine_text([("pasted", other_messages()[cause_id].encode())])
    assert report.findings[0].id == cause_id
    assert report.findings[0].severity != "info"


def test_the_rows_of_a_cause_give_its_messages_surest_first():
    assert "AssertionError: Torch not compiled with CUDA enabled" in messages_of("cpu_only_torch")
    assert messages_of("process_far_from_gpu") == []
    assert "No message shows this cause" in PAGES[place_of("process_far_from_gpu")].text


def test_fixes_that_differ_by_platform_stand_under_its_name():
    text = PAGES[place_of("driver_too_old")].text
    wsl = text[text.index("### WSL and Windows") :].split("###")[1]
    assert "in Windows (not inside WSL)" in wsl
    assert "apt install" not in wsl
    fedora = text[text.index("### Red Hat and Fedora") :].split("## Sources")[0]
    assert "sudo dnf install" in fedora


def test_every_step_that_the_catalogue_gives_on_linux_is_on_the_page():
    for cause_id, cause in CATALOGUE.items():
        for step in cause.fix(Setting()):
            for line in step.run.splitlines():
                assert line in PAGES[place_of(cause_id)].text, (cause_id, line)


def test_neighbours_are_told_apart_by_which_lies_deeper():
    stands = {cause.id: how for cause, how in neighbours_of(CATALOGUE["oom_fragmentation"])}
    assert stands["oom_capacity"] == "follows from this one"
    assert {cause.id: how for cause, how in neighbours_of(CATALOGUE["oom_capacity"])}[
        "oom_fragmentation"
    ] == "is deeper"
    assert "oom_fragmentation" not in stands
