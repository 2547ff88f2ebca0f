"""The `gpudoc check` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpudoc.cli.options import JsonFlag
from gpudoc.errors import ExitCode, GpudocError


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="cfg.yaml files and profiles.")],
    as_json: JsonFlag = False,
) -> int:
    """Check cfg.yaml files and profiles, and name every mistake with its file and line.

    Nothing that a file names is imported. The exit code is 2 when one has a mistake.

    Example: gpudoc check cfg.yaml | gpudoc check .gpudoc/profiles/*.yaml
    """
    from gpudoc.facts.redact import private
    from gpudoc.render.console import print_json, print_lines

    found = {str(path): _mistakes(path) for path in files}
    problems = list(filter(None, found.values()))
    if as_json:
        rows = [{"file": name, "mistakes": _lines(said)} for name, said in found.items()]
        print_json(private({"schema": "gpudoc.check.v1", "files": rows}))
        return ExitCode.NOT_DONE if problems else ExitCode.OK
    if problems:
        raise GpudocError("\n".join(problems))
    print_lines(f"No mistake in {len(files)} {'file' if len(files) == 1 else 'files'}.")
    return 0


def _lines(said: str) -> list[str]:
    """The mistakes of one file, each with its place; the line that counts them is left out."""
    first, *rest = said.splitlines() or [""]
    return [line.strip() for line in rest] or [first] * bool(first)


def _mistakes(path: Path) -> str:
    """The mistakes in one file; '' if there are none."""
    from gpudoc.profile import store
    from gpudoc.profile.model import SCHEMA
    from gpudoc.workload.config import load_config
    from gpudoc.workload.document import read_document

    try:
        data = read_document(path, "config").data
        if isinstance(data, dict) and str(data.get("schema", "")).startswith(SCHEMA.rpartition(".")[0]):
            store.load(path)
        else:
            load_config(str(path))
    except GpudocError as problem:
        return problem.message
    return ""
