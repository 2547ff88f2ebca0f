"""What the documentation shows is what the program does: help texts, commands, links, and the house's names."""

import contextlib
import io
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import typer.main

from gpudoc.cli.app import application, run
from gpudoc.workload.config import load_config

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# a command inside a CI file, a script or a cell; a manifest's list of words is one too
INSIDE = re.compile(r"(?:^|[\s/!])(gpudoc (?:doctor|bench|tune|train|demo|check|mcp|clean)\b[^|;&>#\n]*)", re.MULTILINE)
# what ends within a second or two and needs no file of the reader's is run whole; the rest is parsed by the program
RUN_WHOLE = (r"gpudoc --version", r"gpudoc doctor --list", r"gpudoc doctor --explain \w+", r"gpudoc \w* ?--help")


def commands_in(page: pathlib.Path) -> list[str]:
    fences = FENCE.findall(page.read_text("utf-8"))
    blocks = [text for kind, text in fences if kind in ("sh", "console", "")]
    lists = [text.replace('", "', " ").replace('["', " ") for kind, text in fences if kind in ("yaml", "python")]
    inside = [line.replace('"]', "").strip() for text in lists for line in INSIDE.findall(text) if "{" not in line]
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`(gpudoc [a-z][^`\n]*)`", page.read_text("utf-8"))
    found = [line.split("  #")[0].strip() for line in [*lines, *inline, *inside] if re.match(r"gpudoc (-|[a-z])", line)]
    return [part.strip() for line in found for part in line.split("&&") if part.strip().startswith("gpudoc ")]


ALL = sorted({(page.name, command) for page in PAGES for command in commands_in(page)})


def test_the_pages_show_commands():
    assert len(ALL) > 20


@pytest.mark.parametrize(("page", "command"), ALL)
def test_every_command_shown_is_one_that_the_program_takes(page, command):
    words = ["1" if word in ("PID", "N", "S") else word for word in shlex.split(command)[1:]]
    words = words[: words.index("--")] if "--" in words else words
    words = [word for word in words if word not in ("...", "|", ">") and not word.startswith("[")]
    if any(re.fullmatch(pattern, command) for pattern in RUN_WHOLE):
        assert run(words) == 0
        return
    root = typer.main.get_command(application())
    name, *rest = words
    chosen = root.commands[name]
    if not rest:
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, typer.Exit):
        chosen.make_context(name, list(rest))


def test_help_in_the_pages_is_the_programs_help():
    done = subprocess.run(
        [sys.executable, "tools/help_blocks.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text("utf-8"))
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_config_in_the_documentation_is_valid(tmp_path):
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    example = next(block for kind, block in FENCE.findall(text) if kind == "yaml")
    (tmp_path / "cfg.yaml").write_text(example)
    assert load_config(str(tmp_path / "cfg.yaml")).config.data.eval is not None


def not_used():
    """Words of the glossary's last column, each with the term that is used instead."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.M)
    return {word.strip(): term for term, words in rows[2:] for word in words.split(",") if word.strip()}


def test_one_thing_has_one_name_in_the_pages_and_in_help():
    told = {page.name: page.read_text("utf-8") for page in PAGES if page.name != "glossary.md"}
    root = typer.main.get_command(application())
    for name, command in root.commands.items():
        helps = [parameter.help or "" for parameter in command.params]
        told[f"gpudoc {name} --help"] = "\n".join([command.help or "", *helps])
    words = not_used()
    assert "gradient checkpointing" in words
    for place, text in told.items():
        found = {word for word in words if re.search(rf"\b{re.escape(word)}\b", text, re.I)}
        assert not found, f"{place}: {', '.join(f'{word}: say {words[word]}' for word in found)}"


def test_the_glossary_is_in_order_and_explains_each_term_once():
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]*\|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.M)
    terms = [row.lower() for row in rows if row not in ("term", "---")]
    assert terms == sorted(set(terms))
