"""Faults of the program itself: indices, labels, precision, scaler, checkpoints, kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_LOSS = words(
    r"nll_?loss",
    "ClassNLL",
    "cross_?entropy",
    "binary_cross_entropy",
    "BCELoss",
    "one_hot",
    "focal_?loss",
    r"scatter_\(.{0,40}(?:label|target|\by\b)",
    r"(?:labels?|targets?)\.(?:unsqueeze|long|view)\b",
    r"\bnum_labels\b|\bn(?:um)?_classes\b",
)
_LOOKUP = words(
    r"\bembedding",
    "index_select",
    "srcIndex",
    "input_ids",
    "position_ids",
    r"wte\b",
    r"tok_embeddings",
    r"\bgather\(",
)
_LABEL_ASSERTS = words(
    r"t >= 0 && t < n_classes",
    r"(?:cur_)?target >= 0 && (?:cur_)?target < n_?classes",
    r"input_val >= (?:zero|0) && input_val <= (?:one|1)",
    r"target_val >= (?:zero|0) && target_val <= (?:one|1)",
    r"\bTarget -?\d+ is out of bounds",
    r"Class values must be (?:smaller than num_classes|non-negative)",
    r"ClassNLLCriterion\S* .{0,80}Assertion",
    r"(?:nll_loss|Loss)\w*\.cu.{0,120}Assertion",
    r"all elements of (?:input|target) should be between 0 and 1",
)
_INDEX_ASSERTS = words(
    r"srcIndex < srcSelectDimSize",
    r"index out of range in self",
    r"ind >= 0 && ind < ind_dim_size",
    r"index out of range: Tried to access index \d+ out of table with \d+ rows",
    r"index -?\d+ is out of bounds for (?:dimension|axis) .{0,120}embedding",
    r"EmbeddingBackwardKernel|embedding_dense_backward.{0,120}assert",
)
# a library that is first used after a failed look-up reports that it cannot start
_AFTERMATH = words(
    r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED|EXECUTION_FAILED)", r"CUDNN_STATUS_(?:EXECUTION|MAPPING)_\w+"
)
_IDS = words(
    r"input_ids",
    r"token_?ids?",
    r"\bvocab\w*",
    r"position_ids|max_position_embeddings",
    r"token_type_ids",
    r"resize_token_embeddings",
    r"\btokenizers?\b",
    r"nn\.Embedding|torch\.embedding|F\.embedding",
    r"Running this sequence through the model will result in indexing errors",
)
_GENERIC_INDEX = words(
    r"index out of bounds\W",
    r"-sizes\[i\] <= index && index < sizes\[i\]",
    r"index >= -sizes\[i\] && index < sizes\[i\]",
    r"idx_dim >= 0 && idx_dim < index_size",
    r"device-side assert triggered",
)


# a kernel that torch.compile wrote names the size of what it reads from
_BOUND = Pattern(r"index out of bounds: 0 <= \w+ < (\d+)")
# classes are seldom this many, and a table of words seldom has fewer rows
_VOCABULARY = 5000


def _find_label(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said = text.find(_LABEL_ASSERTS)
    if said:
        yield Finding(id="label_out_of_range", confidence=0.95, evidence=(quote(said, "assertion"),))
        return
    generic = text.find(_GENERIC_INDEX)
    loss = text.find(_LOSS)
    if generic and not text.find(_INDEX_ASSERTS):
        seen = (quote(generic, "assertion"),) + ((quote(loss, "in the loss"),) if loss else ())
        lookup = text.find(_LOOKUP) or text.find(_IDS)
        sure = 0.8 if loss and not lookup else 0.6 if loss else 0.3 if lookup else 0.42
        yield Finding(id="label_out_of_range", confidence=sure, evidence=seen)


def _find_index(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said = text.find(_INDEX_ASSERTS)
    if said:
        yield Finding(id="embedding_index_out_of_range", confidence=0.94, evidence=(quote(said, "assertion"),))
        return
    generic = text.find(_GENERIC_INDEX)
    aftermath, ids = text.find(_AFTERMATH), text.find(_IDS)
    lookup = text.find(_LOOKUP) or ids
    if aftermath and ids and not text.find(words("CUDA out of memory")):
        both = (quote(aftermath, "error"), quote(ids, "in a look-up"))
        yield Finding(id="embedding_index_out_of_range", confidence=0.72, evidence=both)
    elif generic and not text.find(_LABEL_ASSERTS):
        seen = (quote(generic, "assertion"),) + ((quote(lookup, "in a look-up"),) if lookup else ())
        table = text.find(_BOUND)
        of_words = table is not None and int(table[1]) >= _VOCABULARY and not text.find(_LOSS)
        sure = 0.75 if lookup and not text.find(_LOSS) else 0.5 if lookup or of_words else 0.35
        yield Finding(id="embedding_index_out_of_range", confidence=sure, evidence=seen)


_SCALE = Pattern(
    r"(?i)(?:(?:reducing|lowering)\s+loss\s+scale\s+(?:to|from\s+\S+\s+to)|loss\s+scale:?\s*[\d.e+]+,\s*reducing\s+to)"
    r"\s+([\d.]+(?:e[+-]?\d+)?)"
)
_SCALE_FLOOR = words(
    r"loss scale already at minimum",
    r"Minimum loss scale reached",
    r"cannot decrease scale anymore",
    r"cannot be converted to type (?:at::|c10::)?Half without overflow",
    r"(?:grad|loss)[_ ]scale\W{1,4}(?:0\.0+\d*|\d(?:\.\d+)?e-\d+)\b",
)
NAN = words(
    r"\b\w*loss\w*\W{1,5}nan\b",
    r"\bgrad(?:ient)?s?[ _]?(?:norm)?\W{1,5}(?:(?:is|are|becomes?|turn\w*)\W)?\W{0,3}(?:nan|inf)\b",
    r"\bnan (?:loss and )?grad\w*",
    r"(?:loss|lost)(?:es)?(?: \w+){0,3}? (?:is|are|becomes?|became|turn\w*|goes|went|been|=) "
    r"(?:to |all |always )?(?:nan|inf)\b",
    r"(?:return|output|produc|giv|generat|predict)\w* (?:me |only |all )?(?:the )?nans?\b",
    r"\b(?:got|gets?|getting|seeing) (?:an? |only |all )?\W{0,2}nan\b",
    r"nan (?:loss|values? (?:in|detected))",
    r"(?:becom|overflow)\w* (?:\w+ ){0,2}to (?:inf|nan)\b",
    r"Loss is (?:nan|inf)",
    r"returned nan values in its \d+th output",
    r"Found (?:nan|inf) (?:in|values)",
    r"probability tensor contains either `?inf`?, `?nan`?",
    r"black images|all[- ]nan|NansException|produced .{0,20}nans?",
)
_SKIPPED = Pattern(r"(?i)\b(?:grad\w*[ _]?norm|gradients?) (?:is|are|was) (?:nan|inf)\b[^\n]{0,20}\bskip\w*")
HALF = words(
    r"\bfp16\b",
    r"\bfloat16\b",
    r"\bhalf(?: precision)?\b",
    r"\.half\(\)",
    r"\bamp\b",
    "autocast",
    "GradScaler",
    r"mix(?:ed)?[-_ ]precision",
    r"amp[-_ ]opt|opt[-_]level",
    r"混合精度",
    r"precision\W{1,4}16",
    r"\b16-(?:mixed|true)\b",
    "apex",
    "--fp16",
    "loss scaler?",
)


def _find_overflow(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    floor = text.find(_SCALE_FLOOR)
    if floor:
        yield Finding(id="fp16_overflow_nan", confidence=0.93, evidence=(quote(floor, "loss scale"),))
        return
    steps = list(text.find_all(_SCALE))
    scales = [float(s[1].rstrip(".")) for s in steps if re.fullmatch(r"\d*\.?\d+(?:e[+-]?\d+)?", s[1].rstrip("."))]
    # the scaler starts at 2^16 and halves a few times before it settles; below 16 or ten times in a row is a collapse
    if scales and (min(scales) < 16 or len(scales) >= 10):
        yield Finding(id="fp16_overflow_nan", confidence=0.88, evidence=(quote(steps[-1], "loss scale"),))
        return
    skipped = list(text.find_all(_SKIPPED))
    # a scaler that settles skips a step now and then, not one after the other
    if len(skipped) >= 3:
        yield Finding(id="fp16_overflow_nan", confidence=0.6, evidence=(quote(skipped[-1], "skipped steps"),))
        return
    nan, half = text.find(NAN), text.find(HALF)
    if nan and half:
        seen = (quote(nan, "loss"), quote(half, "precision"))
        yield Finding(id="fp16_overflow_nan", confidence=0.78, evidence=seen)


NAN_LOSS = words(
    r"\bloss\w*\W{0,4}(?:(?:is|are|was|becomes?|became|turns?|goes?|gets?|went|to|into|value|always|"
    r"suddenly) )*\W{0,3}nans?\b",
    r"\bnans? (?:in |as )?(?:the )?loss\w*",
)


def _find_nan(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A loss that is not a number, and nothing said of precision: half precision is what overflows first."""
    del evidence
    said = text.find(NAN_LOSS)
    if said and not text.find(words(r"\b(?:fp32|float32|full precision)\b")):
        yield Finding(id="fp16_overflow_nan", confidence=0.42, severity="warning", evidence=(quote(said, "loss"),))


FINDERS = (
    text_finder("fp16_overflow_nan", _find_nan),
    text_finder("label_out_of_range", _find_label),
    text_finder("embedding_index_out_of_range", _find_index),
    text_finder("fp16_overflow_nan", _find_overflow),
)
