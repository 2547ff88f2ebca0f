"""Every row of the signatures tests itself: by its examples, alone and among all others, and each of its patterns."""

from __future__ import annotations

import functools
import itertools
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from gpudoc.doctor import registry, signatures
from gpudoc.doctor.causes.sign import as_words
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Finding
from gpudoc.doctor.registry import Catalogue
from gpudoc.doctor.signatures import Matcher
from gpudoc.facts.model import Machine, TorchBuild
from gpudoc.facts.readers import read
from gpudoc.facts.readers.model import CleanText, Line, Reading
from gpudoc.facts.readers.words import Written
from gpudoc.knowledge import signature_rows
from gpudoc.knowledge.cause_rows import rows_by_area
from gpudoc.knowledge.signature_rows import CODE, FAMILIES, LIST, REGEX, VOCABULARY, Signature, load_folder

FOLDER = Path(signature_rows.__file__).parent / "signatures"
OF_MACHINES = load_folder(FOLDER, examples=True)
OF_CODE = load_folder(FOLDER, examples=True, families=(CODE,))
ROWS = (*OF_MACHINES, *OF_CODE)
# rows of code are looked for in exceptions, and not beside the others
ALL = {family: Matcher(OF_CODE if family == CODE else OF_MACHINES) for family in (*FAMILIES, CODE)}
# below this a row names a candidate, and another cause may be the likelier one
CANDIDATE = 0.6


def raw(name: str) -> list[dict]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))


RAW = {row["id"]: row for family in ALL for row in raw(family)}
FAMILY = {family: {row["id"] for row in raw(family)} for family in ALL}
LISTS = {row["id"]: row for row in raw(VOCABULARY)}


@functools.cache
def reading_of(text: str) -> Reading:
    return read(text)


def find(matcher: Matcher, text: str, machine: Machine | None = None) -> list[Finding]:
    reading = reading_of(text)
    evidence = Evidence(source="file", machine=machine or reading.machine, reading=reading)
    return [found for found in matcher.find(evidence) if isinstance(found, Finding)]


def fires(row: Signature, text: str) -> bool:
    return bool(find(Matcher([row]), text))


def own(patterns: Sequence[str] | str) -> list[str]:
    given = [patterns] if isinstance(patterns, str) else patterns
    return [pattern for pattern in given if not pattern.startswith(LIST)]


def without(patterns: tuple[str, ...], gone: str) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if pattern != gone)


def matches(pattern: str, text: str) -> bool:
    return as_words((pattern,)).search(Written(text)) is not None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_fires_alone_on_its_examples_and_on_nothing_that_it_is_told_to_leave(row):
    assert row.examples, "a row without an example"
    assert row.source.startswith("https://")
    for text in row.examples:
        assert fires(row, text), text
    for text in row.others:
        assert not fires(row, text), text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_among_all_rows_no_surer_one_names_another_cause_for_its_examples(row):
    if row.confidence >= CANDIDATE:
        beside = next(matcher for family, matcher in ALL.items() if row.id in FAMILY[family])
        for text in row.examples:
            found = find(beside, text)
            assert row.cause in {finding.id for finding in found}
            assert not [f for f in found if f.id != row.cause and f.confidence > row.confidence], text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_pattern_is_needed_by_an_example(row):
    """An expression by an example that no other pattern of the row matches; a literal is its own, and no repetition."""
    given = RAW[row.id]
    for pattern in own(given["any"]):
        others = without(row.any, pattern)
        if pattern.startswith(REGEX):
            texts = [text for text in row.examples if not (others and fires(replace(row, any=others), text))]
            assert texts, pattern
        else:
            assert not [other for other in others if matches(other, pattern)], pattern
    for place, group in enumerate(given.get("all", ())):
        for pattern in own(group):
            rest = without(row.all[place], pattern)
            groups = (*row.all[:place], *((rest,) if rest else ()), *row.all[place + 1 :])
            if pattern.startswith(REGEX) and rest:
                assert not all(fires(replace(row, all=groups), text) for text in row.examples), pattern
    for pattern in own(given.get("unless", ())):
        if pattern.startswith(REGEX):
            less = replace(row, unless=without(row.unless, pattern))
            assert any(fires(less, text) for text in row.others), pattern


def blind(pattern: str) -> re.Pattern[str]:
    """A pattern as one expression over the whole text: no word of it is looked for first, no letter made small."""
    source = pattern.removeprefix(REGEX) if pattern.startswith(REGEX) else re.escape(pattern).replace("\\ ", " ")
    spaced = source.replace(" +", " ").replace(" ?", r"\s*").replace(" *", r"\s*").replace(" ", r"\s+")
    return re.compile(spaced, re.IGNORECASE | re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("family", ALL)
def test_what_is_looked_for_first_passes_over_no_place_where_a_pattern_matches(family):
    """As it is, in capitals, in small letters, and wrapped after every word."""
    for row in (row for row in ROWS if row.id in FAMILY[family]):
        texts = [
            form for text in (*row.examples, *row.others) for form in (text, text.upper(), "\n".join(text.split()))
        ]
        given = [
            CleanText(tuple(Line(n, line) for n, line in enumerate(text.split("\n")) if line.strip())) for text in texts
        ]
        for pattern in {*row.any, *row.unless, *itertools.chain(*row.all, *row.about)}:
            whole = blind(pattern)
            for text in given:
                expected, found = whole.search(text.flat), text.find(as_words((pattern,)))
                assert (found and found.match.span()) == (expected and expected.span()), (row.id, pattern, text.flat)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_the_vocabulary_has_an_example_of_each_expression_and_is_used(name):
    for pattern in LISTS[name]["any"]:
        if pattern.startswith(REGEX):
            assert any(matches(pattern, text) for text in LISTS[name]["examples"]), pattern
    sources = [path.read_text("utf-8") for path in FOLDER.glob("*.yaml")]
    code = [path.read_text("utf-8") for path in Path(registry.__file__).parent.rglob("*.py")]
    is_fact = LISTS[name].get("stated", False)
    assert (
        is_fact or any(f"- ${name}\n" in text for text in sources) or any(f'Listed("{name}")' in text for text in code)
    )


def test_rows_have_names_of_their_own_and_causes_of_the_catalogue():
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert {row.cause for row in ROWS} <= set(registry.CATALOGUE)


def test_facts_that_rows_ask_for_are_facts_of_a_machine():
    for row in ROWS:
        for path in (*row.when_fact, *row.unless_fact):
            attrgetter(path)(Machine())


ROW = Signature(id="x", cause="gpu_lost", any=("it broke",), confidence=0.8, source="https://example.org")


def test_a_row_needs_its_words_and_those_beside_and_none_that_veto():
    row = replace(ROW, all=(("gpu", "card"),), about=(("epoch",),), unless=("on purpose",))
    (finding,) = find(Matcher([row]), "first\nIt\nbroke\nthe GPU\nepoch 3")
    assert finding.confidence == 0.8
    assert [o.origin for o in finding.evidence] == ["line 2", "line 4"]
    assert not fires(row, "it broke\nepoch 3")
    assert not fires(row, "it broke\nthe card")
    assert not fires(row, "epoch: the card: it broke on purpose")


def test_signs_of_a_regular_expression_in_a_literal_mean_themselves():
    row = replace(ROW, any=("a.b (c) [d] x+ | $1\\n",))
    assert fires(row, "so: A.B (c) [d] x+ | $1\\n")
    assert not fires(row, "axb c d xx")


def test_a_fact_that_was_read_allows_or_forbids_a_row_and_an_absent_one_does_neither():
    works = Machine(torch=TorchBuild(is_available=True, version="2.6.0"))
    for path, value, holds in (("torch.is_available", "true", True), ("torch.is_available", "false", False),
                               ("torch.version", "known", True), ("torch.version", "2.6.0", True),
                               ("driver.module_version", "known", False)):  # fmt: skip
        wanted = replace(ROW, when_fact={path: value})
        forbidden = replace(ROW, unless_fact={path: value})
        assert bool(find(Matcher([wanted]), "it broke", works)) is holds, path
        assert bool(find(Matcher([forbidden]), "it broke", works)) is not holds, path


def test_a_title_may_hold_what_was_read():
    row = replace(ROW, any=(f"{REGEX}no function (cu\\w+)",), title="The driver has no {1}")
    (finding,) = find(Matcher([row]), "no function cuMemCreate")
    assert finding.title == "The driver has no cuMemCreate"


def test_a_cause_that_is_ignored_is_not_named_by_its_row():
    reading = reading_of("Error 803: system has unsupported display driver / cuda driver combination")
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    assert "libcuda_mismatch_803" in [f.id for f in diagnose(evidence).findings]
    assert "libcuda_mismatch_803" not in [f.id for f in diagnose(evidence, ignore=["libcuda_mismatch_803"]).findings]


MESSAGE = "frobnicator: the flux capacitor of card 3 has run dry"
NEW_CAUSE = """
- id: flux_capacitor_dry
  family: runtime
  title: The flux capacitor is dry
  meaning: no flux is left in the card
  why: It cannot jump.
  fix:
    - Fill it.
  sources:
    - https://example.org/flux
"""


@pytest.mark.parametrize("cause", ["gpu_hardware_fault", "flux_capacitor_dry"], ids=["a new message", "a new cause"])
def test_a_row_is_all_that_a_message_takes(tmp_path, cause):
    """The recipes of CONTRIBUTING.md: rows at the end of a family's file, and doctor names the cause first."""

    def named(folder: Path) -> list[str]:
        reading = reading_of(MESSAGE)
        evidence = Evidence(source="file", machine=reading.machine, reading=reading)
        finders = (*registry.FINDERS, signatures.finder(Matcher(load_folder(folder))))
        return [finding.title for finding in diagnose(evidence, finders=finders, catalogue=catalogue).findings]

    causes = shutil.copytree(FOLDER.parent / "causes", tmp_path / "causes")
    with (causes / "gpu.yaml").open("a", encoding="utf-8") as file:
        file.write(NEW_CAUSE)
    catalogue = Catalogue(rows_by_area(causes))
    folder = shutil.copytree(FOLDER, tmp_path / "signatures")
    assert catalogue[cause].title not in named(folder)
    row = {
        "id": "flux-capacitor-dry",
        "cause": cause,
        "any": ["the flux capacitor of card"],
        "confidence": 0.9,
        "source": "https://example.org/flux",
        "examples": [MESSAGE],
    }
    with (folder / "hardware.yaml").open("a", encoding="utf-8") as file:
        file.write("\n" + yaml.safe_dump([row]))
    assert named(folder)[0] == catalogue[cause].title


def test_the_row_that_the_recipe_shows_is_a_row():
    recipe = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    (shown,) = yaml.safe_load(recipe.split("```yaml\n")[1].split("```")[0])
    row = next(row for row in ROWS if row.id == shown["id"])
    assert (row.cause, row.confidence, row.source) == (shown["cause"], shown["confidence"], shown["source"])
    assert all(fires(row, text) for text in shown["examples"])
