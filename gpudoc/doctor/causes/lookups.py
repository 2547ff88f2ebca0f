"""Indices beyond what they index, as other software than torch's loss and embedding says it, and as code shows it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# the index kernels of THC, before they moved to ATen in torch 1.5
_SCATTER = words(
    r"indexValue >= 0 && indexValue < \w+\.sizes\[dim\]",
    r"index(?:_?value)? ?>= ?-?(?:0|sizes\[\w\]|size) ?&& ?index(?:_?value)? ?< ?\w*(?:sizes?\[\w+\]|size)\b",
    r"THCTensorScatterGather\.cu.{0,80}Assertion|ScatterGatherKernel\.cu.{0,80}Assertion",
)
_CLASSES = Listed("classes")
_TOKENS = Listed("tokens")


def _find_scatter(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An index kernel's assertion: a class in the loss or a row in a look-up, by what the text is about."""
    del evidence
    said = text.find(_SCATTER)
    if said is None:
        return
    classes, tokens = text.find(_CLASSES), text.find(_TOKENS)
    label = 0.74 if classes and not tokens else 0.5 if classes or not tokens else 0.36
    row = 0.74 if tokens and not classes else 0.46
    for name, sure, beside in (
        ("label_out_of_range", label, classes),
        ("embedding_index_out_of_range", row, tokens),
    ):
        seen = (quote(said, "assertion"),) + ((quote(beside, "about"),) if beside else ())
        yield Finding(id=name, confidence=sure, evidence=tuple(dict.fromkeys(seen)))


_FAILS = Listed("index-fails")


# "vocab_size 32000" beside "len(tokenizer) = 32003"
_ROWS = Pattern(r"(?i)(?:vocab_size|num_embeddings|embedding size)\W{1,4}(\d{3,7})\b")
_TOKENIZER_SIZE = Pattern(r"(?i)len\((?:\w+\.)*tokenizer\w*\)\W{1,4}(?:is\s+|=\s*)?(\d{3,7})\b")
_COUNTED = words(r"len\(\w*\.?\w*tokenizer", "Running this sequence")
# "(623 > 512). Running this sequence through the model"
_TOO_LONG = Pattern(r"\((\d{2,7}) > (\d{2,7})\)\W{0,3}Running\s+this\s+sequence")


def _find_sizes(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """More tokens in the tokenizer than rows in the table, or a sequence longer than the positions, and an error."""
    del evidence
    if text.find(_COUNTED) is None:
        return
    fails = text.find(_FAILS)
    if fails is None:
        return
    rows, size = text.find(_ROWS), text.find(_TOKENIZER_SIZE)
    if rows is not None and size is not None and int(size[1]) > int(rows[1]):
        value = f"{size[1]} tokens for {rows[1]} rows"
        yield Finding(
            id="embedding_index_out_of_range",
            confidence=0.85,
            evidence=(observe("vocabulary", value, size.line.origin), quote(fails, "error")),
        )
    long = text.find(_TOO_LONG)
    if long is not None and int(long[1]) > int(long[2]):
        value = f"{long[1]} tokens for {long[2]} positions"
        yield Finding(
            id="embedding_index_out_of_range",
            confidence=0.7,
            evidence=(observe("sequence", value, long.line.origin), quote(fails, "error")),
        )


FINDERS = (
    text_finder("label_out_of_range", _find_scatter),
    text_finder("embedding_index_out_of_range", _find_sizes),
)
