"""The way out that an error names itself ('... by setting NCCL_NVLS_ENABLE=0'), relayed where it stands for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoc.doctor.model import Finding, Remedy
from gpudoc.doctor.remedies import do
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# only variables of the software that computes: a text of unknown origin may name LD_PRELOAD too
_FAMILIES = (
    "NCCL|RCCL|TORCH|TORCHINDUCTOR|PYTORCH|CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NVTE|OMP|KMP|MKL|GLOO|UCX|FI|HSA|HIP|ROCR|"
    "MIOPEN|HF|TRANSFORMERS|ACCELERATE|DEEPSPEED|DS|VLLM|XLA|JAX|TF|TRITON|BNB"
)
_PAIR = Pattern(
    rf"""[`'"(]?\b((?:{_FAMILIES})(?:_[A-Z0-9]+)+)[`'"]?"""
    r"""(?: ?= ?[`'"]?(:?[\w][\w.:/+,-]*)|\s+(?:environment variable )?to [`'"]?(\d+|true|false|TRUE|FALSE)\b)"""
)
_ADVICE = Pattern(
    r"(?i)\b(?:set(?:ting)?|try|consider|please|must|export|use|re-?run with|work ?around|you (?:can|may|should))\b"
)
_FAILED = Pattern(r"Error\b|Exception\b|\bWARN|\bFATAL|(?i:\bfail(?:ed|ure)?\b|not supported|\berror\b)")
# what somebody says of his own attempts, and what a condition or a warning goes with, is no advice to pass on
_TOLD = Pattern(
    r"\bI\b|\bI'|(?i:\bwe\b|\bmy\b|\btried\b|\bdid ?n.t\b|\bdoes ?n.t (?:help|work)|\bwithout (?:success|luck))"
)
_CONDITION = Pattern(r"(?i)(?:^|[.:;)] )\s*if\b[^.]*$")
_NOT_ADVISED = Pattern(r"(?i)unsafe|unsupported, undocumented|not recommended|do not|don't|dangerous")
# these show more and mend nothing
_SHOWS = Pattern(r"DEBUG|LOG|TRACE|BLOCKING|VERBOSE|STACK|FULL_ERROR|DSA|PARALLELISM$")
_NEAR = 4
_MOST = 3


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting that an error advises, with the places of the lines around it."""

    setting: str
    near: tuple[str, ...]


def read(text: Text) -> tuple[Advice, ...]:
    """Every setting that an error in the text advises, in order and each once."""
    found: dict[str, Advice] = {}
    for place, line in enumerate(text.lines):
        if "_" not in line.text or not _ADVICE.search(line.text) or _TOLD.search(line.text):
            continue
        around = text.lines[max(0, place - _NEAR + 1) : place + 1]
        if any(_FAILED.search(one.text) for one in around):
            for setting in _settings(line.text):
                found.setdefault(setting.split("=")[0], Advice(setting, tuple(one.origin for one in around)))
    return tuple(found.values())[:_MOST]


def _settings(line: str) -> Iterator[str]:
    for match in _PAIR.finditer(line):
        before = line[: match.start()]
        if not _ADVICE.search(before[-160:]) or _CONDITION.search(before) or _NOT_ADVISED.search(before[-80:]):
            continue
        value = (match[2] or match[3]).rstrip(".,:")
        if value and not _SHOWS.search(match[1]):
            yield f"{match[1]}={value}"


def first_steps(finding: Finding, advices: Sequence[Advice]) -> tuple[Remedy, ...]:
    """What the lines that support a finding advise themselves, as steps to put before its own."""
    origins = {seen.origin for seen in finding.evidence}
    mine = [advice.setting for advice in advices if origins.intersection(advice.near)]
    if not mine:
        return ()
    return (do(f"Set {' and '.join(mine)}, as the error itself advises.", f"export {' '.join(mine)}"),)
