"""The worst words stay out of everything that a user can read, and out of the docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
# how German or an old book says it; behind each, what English says today
STIFF = {
    r"anew": "again",
    r"beside": "next to, besides, together with, while",
    r"alike": "the same way, equal",
    r"whoever": "the person, the process",
    r"thereby": "by this",
    r"who does not": "if somebody does not",
    r"(?<!there )(?:is|are) no (?!longer|more|less|faster|slower)(?!doubt)\w+": "is not a, are not",
    r"so many": "this many",
    r"of (?:its|their) own": "separate, its own",
    r"told": "reported, asked, said",
}
WORDS = re.compile(r"\b(?:" + "|".join(STIFF) + r")\b", re.IGNORECASE)
# a name in the code, and what a program prints, are no English of ours
QUOTED = re.compile(r"`[^`]*`|```.*?```|'[^']*'", re.DOTALL)
# the pages that a user reads; the changelog is history
DOCS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "SECURITY.md"]


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def stiff_words(text: str) -> list[str]:
    return [found[0] for found in WORDS.finditer(QUOTED.sub("", text))]


def test_no_string_of_the_package_has_them():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in sorted((ROOT / "gpudoc").rglob("*.py"))
        for line, text in strings_of(path)
        if (words := stiff_words(text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_no_page_has_them(path):
    lines = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL).splitlines()
    found = [f"{words}: {line}" for line in lines if (words := stiff_words(line))]
    assert not found, "\n".join(found)


def texts_of(value: object) -> Iterator[str]:
    """What people read of a row of causes; commands and addresses are not English."""
    match value:
        case str():
            yield value
        case dict():
            for key, part in value.items():
                if key not in ("id", "run", "sources"):
                    yield from texts_of(part)
        case list():
            for part in value:
                yield from texts_of(part)


def test_no_cause_has_them():
    files = sorted((ROOT / "gpudoc" / "knowledge" / "causes").glob("*.yaml"))
    assert files
    found = [
        f"{path.name}: {words}: {text}"
        for path in files
        for text in texts_of(yaml.safe_load(path.read_text("utf-8")))
        if (words := stiff_words(text))
    ]
    assert not found, "\n".join(found)
