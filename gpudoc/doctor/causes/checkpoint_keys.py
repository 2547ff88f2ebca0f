"""Keys of a checkpoint against those of the model: what a wrapper put in front of every name, found by comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import SEVERAL
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# torch prints the missing keys before the unexpected ones; each list is cut after what a comparison needs
_MISSING = Pattern(r"(?i)missing[_ ]key(?:\(s\)|s)?\b[^\"'\n]{0,40}(?P<keys>(?:[\"'][\w.]+[\"'](?:,\s*)?){1,30})")
_UNEXPECTED = Pattern(r"(?i)unexpected[_ ]key(?:\(s\)|s)?\b[^\"'\n]{0,40}(?P<keys>(?:[\"'][\w.]+[\"'](?:,\s*)?){1,30})")
_KEY = re.compile(r"[\"']([\w.]+)[\"']")
# what DataParallel, DDP, torch.compile, FSDP and DeepSpeed's engine call the model inside them
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_forward_module.")


def _find_prefix(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Missing and unexpected keys that are the same names, but for what stands before or between."""
    del evidence
    missing, unexpected = text.find(_MISSING), text.find(_UNEXPECTED)
    if missing is None or unexpected is None:
        return
    wanted, given = set(_KEY.findall(missing["keys"])), set(_KEY.findall(unexpected["keys"]))
    pairs = [(one, other) for one in sorted(wanted) for other in sorted(given) if _bare(one) == _bare(other)]
    longer = [(a, b) for a in sorted(wanted) for b in sorted(given) if a.endswith(f".{b}") or b.endswith(f".{a}")]
    if pairs or longer:
        one, other = (pairs or longer)[0]
        yield Finding(
            id="state_dict_module_prefix",
            confidence=0.94 if pairs else 0.62,
            evidence=(
                observe("model", one, missing.line.origin),
                observe("checkpoint", other, unexpected.line.origin),
            ),
        )


def _bare(key: str) -> str:
    for wrapper in _WRAPPERS:
        key = key.replace(wrapper, "")
    return key


_KEYS = words(
    r"state_?dicts?\b",
    r"\bkeys?\b|\bkeywords?\b",
    r"\b(?:layer|parameter|weight)s?(?:'s|')? names?\b|\bnames? of (?:all |the )*(?:layer|parameter|weight)s?",
    "参数名|键",
)
_PREFIX = words(
    r"['\"`]\W{0,2}(?:module|_orig_mod|_fsdp_wrapped_module|_forward_module)\.?\W{0,2}['\"`]",
    r"\b(?:module|_orig_mod)\.(?:x{2,}|\w+\.)",
    r"\b(?:module|_orig_mod)\b[^.\n]{0,16}\bprefix|prefix[^.\n]{0,16}\b(?:module|_orig_mod)\b",
)
_LOADS = words(
    r"\bload\w*", r"\bcheckpoint\w*", r"\bpre-?trained\b", r"\bsaved?\b|\bsaving\b", r"\bresum\w*", "加载|读取"
)
_WRAPPED = words(r"data_?parallel", r"\bddp\b", r"torch\.compile")
_FAILS_TO_LOAD = words(
    r"(?:missing|unexpected)[_ ]key",
    r"error\W{0,3}\w{0,2}\W{0,2} (?:in )?loading (?:the )?state_?dict",
    r"size mismatch for module\.",
    r"(?:can ?not|can't|unable to|fail\w* to) (?:load|resume|restore)[^.\n]{0,40}(?:checkpoint|weights?|model)",
)


def _find_told(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The prefix as somebody tells it, or keys that do not fit where only one side was wrapped."""
    del evidence
    prefix = together(text, _PREFIX, _KEYS, _LOADS, around=1)
    if prefix is not None:
        yield Finding(id="state_dict_module_prefix", confidence=0.82, evidence=(quote(prefix, "keys"),))
        return
    fails, wrapped = text.find(_FAILS_TO_LOAD), text.find(_WRAPPED)
    if fails is not None and (wrapped is not None or text.find(SEVERAL) is not None):
        seen = (quote(fails, "keys"), *((quote(wrapped, "wrapper"),) if wrapped else ()))
        yield Finding(id="state_dict_module_prefix", confidence=0.55, evidence=tuple(dict.fromkeys(seen)))


FINDERS = (
    text_finder("state_dict_module_prefix", _find_prefix),
    text_finder("state_dict_module_prefix", _find_told),
)
