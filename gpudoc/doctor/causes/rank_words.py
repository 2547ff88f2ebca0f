"""What is said of ranks in one line: by NCCL, by torch, or by somebody who has already found what helps."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import by_text, quote, words
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_VISIBLE = Pattern(r"CUDA_VISIBLE_DEVICES\s*=\s*['\"]?(\d(?:\s*,\s*\d)*)")
_STARTED = Pattern(r"(?:nproc[_-]per[_-]node|num_processes|--num_gpus|--np|-np)[\s=:]+(\d+)\b")
_NCCL_FAILS = words(r"invalid usage|ncclInvalidUsage|Duplicate GPU|same (?:gpu|device)|\bout of memory\b")


def _find_too_many_ranks(text: Text) -> Iterator[Finding | Skip]:
    """More processes were started than devices were made visible."""
    visible, started, fails = text.find(_VISIBLE), text.find(_STARTED), text.find(_NCCL_FAILS)
    if visible is None or started is None or fails is None:
        return
    devices, ranks = visible[1].count(",") + 1, int(started[1])
    if ranks > devices:
        value = f"{ranks} processes, {devices} visible"
        seen = (observe("devices", value, visible.line.origin), quote(fails, "error"))
        yield Finding(id="duplicate_gpu_ranks", confidence=0.82, evidence=seen)


FINDERS = (by_text("duplicate_gpu_ranks", _find_too_many_ranks),)
