"""The door of the readers: anybody's text, or gpudoc's own live words, as one Reading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Fact, Machine
from gpudoc.facts.readers import collect_env, kernel_log, kinds, mentions, nvidia_smi, packages
from gpudoc.facts.readers.clean import clean
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line, Reading, Text

# the most that is taken from one file: 2 GiB; beyond it is no report
_MOST_BYTES = 2 * 1024**3


def load(path: Path) -> bytes:
    """The bytes of a file; GpudocError when it is missing, a directory or unreadable."""
    try:
        if path.is_dir():
            raise GpudocError(f"{path} is a directory", hint=f"name the file in it, for example {path}/train.log")
        if path.stat().st_size > _MOST_BYTES:
            raise GpudocError(f"{path} is larger than 2 GiB", hint=f"tail -c 100M {path} | gpudoc doctor -")
        return path.read_bytes()
    except FileNotFoundError as problem:
        raise GpudocError(f"no such file: {path}", hint="give the path of a report or log, or - for stdin") from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise GpudocError(f"cannot read {path}: {reason}", hint="check the path and its permissions") from problem


def read(data: bytes | str, *, source: str = "", name: str = "the input") -> Reading:
    """One pass over pasted text of any mixture; GpudocError when it is empty or binary."""
    raw = data.encode("utf-8", errors="replace") if isinstance(data, str) else data
    return read_lines(clean(raw, source, name=name))


def read_all(inputs: Sequence[tuple[str, bytes]]) -> Reading:
    """Several texts as the evidence of one machine, each line citing the name of its input when there is more "
    "than one."""
    several = len(inputs) > 1
    lines: list[Line] = []
    for name, data in inputs:
        lines += clean(data, name if several else "", name=name)
    return read_lines(tuple(lines))


def read_lines(lines: tuple[Line, ...]) -> Reading:
    """The facts and kinds of report in cleaned lines."""
    text = Text(lines)
    gather = Gather()
    collect_env.read(lines, gather)
    nvidia_smi.read(lines, gather)
    packages.read(lines, gather)
    kernel_log.read(lines, gather)
    mentions.read(text, gather)
    kinds.read(text, gather)
    return Reading(
        machine=gather.machine(), text=text, recognised=tuple(gather.recognised), origins=dict(gather.origins)
    )


def read_machine(machine: Machine) -> Reading | None:
    """What a live machine's torch said in words (its import error, failed kernels), or None.

    Its warnings, NVML's and the kernel's words are left to those who asked: they know the codes behind them.
    """
    said: list[tuple[str, Fact[str]]] = [("torch import", machine.torch.import_error)]
    checks = machine.torch.kernel_checks
    said += [(f"kernel on GPU {c.device}", c.error) for c in (() if isinstance(checks, Absent) else checks)]
    lines = tuple(
        Line(0, part, source)
        for source, words in said
        if not isinstance(words, Absent)
        for part in words.splitlines()
        if part.strip()
    )
    if not lines:
        return None
    return Reading(machine=machine, text=Text(lines), recognised=("machine",))


def read_document(data: bytes) -> Mapping[str, object] | None:
    """The JSON object in `data` when it is one of gpudoc's own documents, else None."""
    head = data[:4_000].lstrip(b"\xef\xbb\xbf \r\n\t")
    if not head.startswith(b"{") or b'"schema"' not in data[:200_000]:
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("gpudoc."):
        return document
    return None


def load_stdin() -> bytes:
    """All bytes of standard input; GpudocError when a terminal would be waited for."""
    import sys

    if sys.stdin.isatty():
        raise GpudocError("- reads standard input, and nothing is piped in", hint="gpudoc doctor - < train.log")
    return sys.stdin.buffer.read()
