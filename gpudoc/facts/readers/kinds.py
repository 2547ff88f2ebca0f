"""What kinds of report a text holds, beyond those whose own reader recognises them."""

from __future__ import annotations

from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Text
from gpudoc.facts.readers.words import Words
from gpudoc.patterns import MULTILINE, Pattern

_KINDS: tuple[tuple[str, Pattern | Words], ...] = (
    ("traceback", Pattern(r"Traceback\s+\(most\s+recent\s+call\s+last\)|^[^\S\n]*File \".+\", line \d+", MULTILINE)),
    ("error", Pattern(r"(?m)^\W{0,6}(?:\[[^\]]{1,30}\]:?\s*)?(?:\w+\.)*\w*(?:Error|Exception|Warning)\b\s*:")),
    (
        "training_log",
        Words(
            r"\bepochs?\b\W{0,4}[\[(]?\s*\d+|\b(?:iter|step|steps|iteration)s?\b\W{0,4}\d+|\d\s?(?:it/s|s/it|img/s|"
            r"samples?/s|tokens/s|examples/s)|\b\w*loss\w*\b\W{0,4}\d|loss scal|gradient overflow|\blr\W{1,3}\d|\bETA\b"
        ),
    ),
    ("gpu_report", Words(r"\bnvidia-smi\b|\bnvcc\b|\brocm-smi\b|\bcuda\b|\bcudnn\b|\bnccl\b|\bnvidia\b")),
    ("torch_report", Words(r"\b(?:py)?torch\b|\bcuda\(\)|DataLoader|\bGPU\b")),
    ("kernel_log", Words(r"\bNVRM\b|\boom-kill|\bXid\b|out of memory: kill")),
    (
        "installer",
        Words(r"\b(?:pip3?|conda|uv|poetry) (?:install|add|sync|update)\b|No matching distribution"),
    ),
)


def read(text: Text, gather: Gather) -> None:
    """Name in `gather` every kind of report whose marks are in the text."""
    for kind, pattern in _KINDS:
        if text.find(pattern):
            gather.recognise(kind)
