"""A page per command, from the program's own options, and the rows of bench, from its cases."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer.main

from gpudoc.bench.cases import cuda_soak
from gpudoc.bench.cases.catalog import CPU_CASES, CUDA_CASES
from gpudoc.cli.app import application
from tools.handbook.page import Page, fenced, plain, sentence, table

# the pages that say more than the help does
_MORE = {
    "doctor": ("doctor.md", "machine.md", "watch.md"),
    "bench": ("bench.md", "bench-rows.md"),
    "tune": ("tune.md", "loader.md", "plan.md", "configuration.md"),
    "train": ("train.md", "cluster.md", "configuration.md"),
    "demo": ("doctor.md",),
    "check": ("configuration.md", "recipes/ci.md"),
    "mcp": ("agents.md",),
    "clean": ("files.md",),
}


def command_pages() -> list[Page]:
    """A page for each command, in the order of `gpudoc --help`."""
    root: Any = typer.main.get_command(application())
    return [Page(f"commands/{name}.md", f"gpudoc {name}", _text(name, one)) for name, one in root.commands.items()]


def _text(name: str, command: Any) -> str:  # noqa: ANN401  click or typer's copy of it
    meaning, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    context = command.make_context(name, [], resilient_parsing=True, **command.context_settings)
    usage = " ".join(["gpudoc", name, *command.collect_usage_pieces(context)])
    parts = [plain(" ".join(meaning.split())), fenced(usage, "text")]
    example = " ".join(rest.split()).removeprefix("Example:").strip()
    if example:
        parts.append("## Examples\n\n" + fenced("\n".join(one.strip() for one in example.split(" | ")), "sh"))
    for kind, title in (("argument", "Arguments"), ("option", "Options")):
        records = [one.get_help_record(context) for one in command.params if one.param_type_name == kind]
        rows = [(_spelling(record[0]), _meaning(record[1])) for record in records if record]
        if rows:
            parts.append(f"## {title}\n\n" + table((kind, "meaning"), rows))
    more = [f"[{page.removesuffix('.md')}](../{page})" for page in _MORE.get(name, ())]
    if more:
        parts.append("More: " + " · ".join(more))
    parts.append("What the exit codes mean: [commands](../commands.md).")
    return "\n\n".join(part.rstrip() for part in parts)


def _spelling(told: str) -> str:
    """'-v, --verbose' as code, without the name of a Python type."""
    names = re.sub(r" <list\[.*", "", told).split(", ")
    return ", ".join(f"`{name}`" for name in names)


def _meaning(told: str) -> str:
    """A help text as a sentence; bounds such as [x>=0] are left out, they are told when one is passed."""
    text, _, default = re.sub(r"\s*\[x[<>]=\S+\]", "", told).partition("[default: ")
    return plain(sentence(text)) + (f" Default: `{default.removesuffix(']')}`." if default else "")


def rows_page() -> Page:
    """What each row of bench measures, and what a low figure means."""
    head = (
        "Every row that [`gpudoc bench`](bench.md) prints. 1 GB is 10⁹ bytes; bytes are counted as STREAM does, what\n"
    )
    head += "is read and what is written. Where a ceiling comes from and what a doubt means: [bench](bench.md)."
    parts = [head]
    on_gpu = (*CUDA_CASES[: -len(CPU_CASES)], cuda_soak.CASE)
    for title, cases in (("On the CPU", CPU_CASES), ("On the GPU", on_gpu)):
        parts.append(f"## {title}")
        for case in cases:
            rows = [(f"`{name}`", plain(text)) for name, text in case.rows.items()]
            asked = "--soak 60s" if case is cuda_soak.CASE else f"--only {case.name}"
            only = fenced(f"gpudoc bench {asked}" + (" --data ." if case.name == "folder" else ""), "sh")
            parts.append(f"### `{case.name}`: {case.meaning}\n\n{table(('row', 'what it measures'), rows)}\n{only}")
    return Page("bench-rows.md", "The rows of gpudoc bench", "\n\n".join(part.rstrip() for part in parts))
