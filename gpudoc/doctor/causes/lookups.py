"""Indices beyond what they index, as other software than torch's loss and embedding says it, and as code shows it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# the index kernels of THC, before they moved to ATen in torch 1.5
_SCATTER = words(
    r"indexValue >= 0 && indexValue < \w+\.sizes\[dim\]",
    r"index(?:_?value)? ?>= ?-?(?:0|sizes\[\w\]|size) ?&& ?index(?:_?value)? ?< ?\w*(?:sizes?\[\w+\]|size)\b",
    r"THCTensorScatterGather\.cu.{0,80}Assertion|ScatterGatherKernel\.cu.{0,80}Assertion",
)
_CLASSES = words(
    r"\bn(?:um)?_?class(?:es)?\b|\bclass(?:es)? (?:number|ids?|index)\b|\bnumber of classes\b|\bnc\b ?[:=]",
    r"\bmasks?\b|\blabels?\b|\btargets?\b|\bannotations?\b|\bcategor(?:y|ies)\b|\bsegment\w*",
    "类别|标签|标注|掩码",
)
_TOKENS = words(
    r"\bvocab\w*|\btokeni[sz]\w*|\btokens?\b|\binput_ids\b|\bembeddings?\b|\bposition_ids\b", "词表|分词|嵌入"
)
# these kinds of text alone are about pictures, whose numbers are classes
_PICTURES = words(r"\bmasks?\b|\bsegment\w*|\bpixels?\b|\bimages?\b", "掩码|图像|分割")


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


_ASSERTED = words(r"device-side assert", r"runtime error \(59\)|error (?:code )?59\b|cudaErrorAssert\b")


def _find_bare_assert(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An assertion of a kernel that nobody names, in a text about masks or labels."""
    del evidence
    said, picture = text.find(_ASSERTED), text.find(_PICTURES)
    if said and picture and text.find(_CLASSES) and not text.find(_TOKENS):
        both = (quote(said, "assertion"), quote(picture, "about"))
        yield Finding(id="label_out_of_range", confidence=0.4, evidence=tuple(dict.fromkeys(both)))


_NEW_TOKENS = words(
    r"\.add_(?:special_)?tokens\(|additional_special_tokens",
    r"\b(?:add\w*|insert\w*|extend\w*|introduc\w*|put) (?:\w+ ){0,4}(?:special |new |extra |own )(?:\w+ )?tokens?\b",
    r"\b(?:new|extra|special|added) tokens?\b[^.\n]{0,40}\b(?:to|into|in) (?:the |my )?(?:\w+ )?"
    r"(?:tokeni[sz]er|vocab\w*)",
    r"(?:添加|增加|新增|加入)(?:了)?(?:\w|特殊|新的?|一些)*\W{0,2}(?:token|词)",
)
_TABLE_GROWN = words(r"resize_token_embeddings\(")
_FAILS = words(
    r"\bindex\w*\b[^.\n]{0,40}\bout of (?:range|bounds)\b|\bIndexError\b|\bgoes out of range\b|\bKeyError\b",
    r"device-side assert|runtime error \(59\)|CUBLAS_STATUS_\w+|cublas runtime error|CUDA error|CUDNN_STATUS_\w+",
    r"srcIndex < srcSelectDimSize|\bcuda (?:runtime )?error\b",
    r"\bout of range\b",
)


def _find_new_tokens(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Tokens were added and the model's table was not made larger: their rows do not exist."""
    del evidence
    added, fails = text.find(_NEW_TOKENS), text.find(_FAILS)
    if added and fails and not text.find(_TABLE_GROWN) and not text.find(words("out of memory")):
        both = (quote(added, "new tokens"), quote(fails, "error"))
        yield Finding(id="embedding_index_out_of_range", confidence=0.83, evidence=tuple(dict.fromkeys(both)))


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


_LONGER = words(
    r"\b(?:longer than|more than|over|beyond|exceed\w*|greater than|>) ?(?:the )?(?:\d{3,5} ?"
    r"(?:tokens?|positions?|words|characters)|max(?:imum)?[_ ](?:sequence[_ ])?(?:length|len|position\w*))",
    r"\b(?:sequence|input|text|sentence)s? (?:\w+ ){0,3}too long\b",
)


def _find_longer(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An assertion as soon as the input has more tokens than there are positions."""
    del evidence
    longer = text.find(_LONGER)
    fails = text.find(_ASSERTED) or text.find(words(r"\bindex out of range\b|\bIndexError\b"))
    if longer and fails and not text.find(words(r"\bmasks?\b|\bsegment(?:ation|ing)\b")):
        both = (quote(longer, "input"), quote(fails, "error"))
        yield Finding(id="embedding_index_out_of_range", confidence=0.78, evidence=tuple(dict.fromkeys(both)))


FINDERS = (
    text_finder("label_out_of_range", _find_scatter),
    text_finder("label_out_of_range", _find_bare_assert),
    text_finder("embedding_index_out_of_range", _find_new_tokens),
    text_finder("embedding_index_out_of_range", _find_sizes),
    text_finder("embedding_index_out_of_range", _find_longer),
)
