"""Installed packages as pip, conda, uv or collect_env list them."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.model import Package
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import IGNORECASE, Pattern

_PINNED = Pattern(
    r"^\W{0,3}(?:\[(pip3?|conda)\]\s+|[+~]\s+|\d+:\s+)?([A-Za-z][\w.-]*\w)\s?==\s?([0-9][\w.+!-]*)\s*(?:;.*|\\)?$"
)
_COLLECTED = Pattern(r"^\W{0,3}\[(pip3?|conda)\]\s+([A-Za-z_][\w.-]*\w)\s+(\d[\w.+!-]*)(?:\s+(\S+))?(?:\s+(\S+))?\s*$")
_TABLE = Pattern(r"^\s{0,4}([A-Za-z_][\w.-]*\w)\s{2,}v?(\d[\w.+!-]*)(?:\s{1,}(\S+))?(?:\s{1,}(\S+))?\s*$")
_HEADER = Pattern(r"^\W{0,3}(?:# )?(?:Package|Name)\s{2,}Version\b", IGNORECASE)
_INSTALLED = Pattern(r"Successfully installed ((?:[A-Za-z][\w.-]*-\d\S*\s*)+)")
_INTERESTING = Pattern(
    r"(?i)^(?:lib)?(?:torch|pytorch|nvidia|triton|cuda|cudnn|numpy|xformers|flash|bitsandbytes|apex|deepspeed|tensorrt|"
    r"pynvml|cupy|jax|tensorflow|lightning|transformers|accelerate|_pytorch|nccl|libcu|mkl|mmcv|vllm|onnxruntime|"
    r"cutlass)"
)


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put the packages named in the lines into `gather`; a table row counts only below a header or if CUDA-related."""
    in_table = False
    for line in lines:
        text = line.text
        if _HEADER.match(text):
            in_table = True
            gather.recognise("package_list")
            continue
        if not text.strip().strip("- ="):
            continue
        in_table = _read_line(line, gather, in_table)


def _read_line(line: Line, gather: Gather, in_table: bool) -> bool:
    text = line.text
    collected = _COLLECTED.match(text)
    if collected:
        _put(gather, line, collected[2], collected[3], collected[1], collected[4] or "")
        return in_table
    pinned = _PINNED.match(text)
    if pinned:
        _put(gather, line, pinned[2], pinned[3], pinned[1] or "pip", "")
        return in_table
    row = _TABLE.match(text)
    if row and (in_table or _INTERESTING.match(row[1])):
        _put(gather, line, row[1], row[2], "conda" if row[4] or _looks_built(row[3]) else "pip", row[3] or "")
        return in_table
    installed = _INSTALLED.search(text)
    if installed:
        for word in installed[1].split():
            name, _, version = word.rpartition("-")
            _put(gather, line, name, version, "pip", "")
    return in_table and row is not None


def _looks_built(word: str | None) -> bool:
    return bool(word and Pattern(r"(?:py\d|h[0-9a-f]{6,}|cuda|cpu_|\d+$|[\w.]+_\d+$)").match(word))


def _put(gather: Gather, line: Line, name: str, version: str, channel: str, build: str) -> None:
    kind = "conda" if channel == "conda" else "pip"
    gather.recognise("package_list")
    gather.put_package(Package(name=name, version=version, location=build, channel=kind), line)
    if name.lower() in ("torch", "pytorch"):
        gather.put_torch(version, line, build)
