"""Find a vocabulary or a sequence that is larger than its table, and a loss scale that collapses."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Listed, by_text, quote, words
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import Pattern

_SCALE = Pattern(
    r"(?i)(?:(?:reducing|lowering)\s+loss\s+scale\s+(?:to|from\s+\S+\s+to)|loss\s+scale:?\s*[\d.e+]+,\s*reducing\s+to)"
    r"\s+([\d.]+(?:e[+-]?\d+)?)"
)
_NUMBER = Pattern(r"(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?")
_SKIPPED = Pattern(r"(?i)\b(?:grad\w*[ _]?norm|gradients?) (?:is|are|was) (?:nan|inf)\b[^\n]{0,20}\bskip\w*")


def _find_overflow(text: CleanText) -> Iterator[Finding | Skip]:
    steps = list(text.find_all(_SCALE))
    told = [step[1].rstrip(".") for step in steps]
    scales = [float(scale) for scale in told if _NUMBER.fullmatch(scale)]
    # the scaler starts at 2^16 and halves a few times before it settles; below 16 or ten times in a row is a collapse
    if scales and (min(scales) < 16 or len(scales) >= 10):
        yield Finding(id="fp16_overflow_nan", confidence=0.88, evidence=(quote(steps[-1], "loss scale"),))
        return
    skipped = list(text.find_all(_SKIPPED))
    # a scaler that settles skips single steps, not several in a row
    if len(skipped) >= 3:
        yield Finding(id="fp16_overflow_nan", confidence=0.6, evidence=(quote(skipped[-1], "skipped steps"),))


_TOO_LARGE = "embedding_index_out_of_range"
_FAILS = Listed("index-fails")
# "vocab_size 32000" together with "len(tokenizer) = 32003"
_ROWS = Pattern(r"(?i)(?:vocab_size|num_embeddings|embedding size)\W{1,4}(\d{3,7})\b")
_TOKENIZER_SIZE = Pattern(r"(?i)len\((?:\w+\.)*tokenizer\w*\)\W{1,4}(?:is\s+|=\s*)?(\d{3,7})\b")
_COUNTED = words(r"len\(\w*\.?\w*tokenizer", "Running this sequence")
# "(623 > 512). Running this sequence through the model"
_TOO_LONG = Pattern(r"\((\d{2,7}) > (\d{2,7})\)\W{0,3}Running\s+this\s+sequence")


def _find_sizes(text: CleanText) -> Iterator[Finding | Skip]:
    """More tokens in the tokenizer than rows in the table, or a sequence longer than the positions, and an error."""
    if text.find(_COUNTED) is None:
        return
    fails = text.find(_FAILS)
    if fails is None:
        return
    rows, size = text.find(_ROWS), text.find(_TOKENIZER_SIZE)
    if rows is not None and size is not None and int(size[1]) > int(rows[1]):
        vocabulary = observe("vocabulary", f"{size[1]} tokens for {rows[1]} rows", size.line.origin)
        yield Finding(id=_TOO_LARGE, confidence=0.85, evidence=(vocabulary, quote(fails, "error")))
    long = text.find(_TOO_LONG)
    if long is not None and int(long[1]) > int(long[2]):
        sequence = observe("sequence", f"{long[1]} tokens for {long[2]} positions", long.line.origin)
        yield Finding(id=_TOO_LARGE, confidence=0.7, evidence=(sequence, quote(fails, "error")))


FINDERS = (by_text(_TOO_LARGE, _find_sizes), by_text("fp16_overflow_nan", _find_overflow))
