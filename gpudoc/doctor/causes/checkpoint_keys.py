"""Compare a checkpoint's keys with the model's, to find the prefix that a wrapper put before every name."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import by_text
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import Pattern

# torch prints the missing keys before the unexpected ones; each list is cut to the length that a comparison needs
_MISSING = Pattern(r"(?i)missing[_ ]key(?:\(s\)|s)?\b[^\"'\n]{0,40}(?P<keys>(?:[\"'][\w.]+[\"'](?:,\s*)?){1,30})")
_UNEXPECTED = Pattern(r"(?i)unexpected[_ ]key(?:\(s\)|s)?\b[^\"'\n]{0,40}(?P<keys>(?:[\"'][\w.]+[\"'](?:,\s*)?){1,30})")
_KEY = Pattern(r"[\"']([\w.]+)[\"']")
# the names that DataParallel, DDP, torch.compile, FSDP and DeepSpeed's engine give to the model inside them
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_forward_module.")


def _find_prefix(text: CleanText) -> Iterator[Finding | Skip]:
    """Missing and unexpected keys that are the same names except for a prefix or an infix."""
    missing, unexpected = text.find(_MISSING), text.find(_UNEXPECTED)
    if missing is None or unexpected is None:
        return
    wanted, given = set(_KEY.findall(missing["keys"])), set(_KEY.findall(unexpected["keys"]))
    pairs = [(one, other) for one in sorted(wanted) for other in sorted(given) if _bare(one) == _bare(other)]
    longer = [(a, b) for a in sorted(wanted) for b in sorted(given) if a.endswith(f".{b}") or b.endswith(f".{a}")]
    if pairs or longer:
        one, other = (pairs or longer)[0]
        seen = (observe("model", one, missing.line.origin), observe("checkpoint", other, unexpected.line.origin))
        yield Finding(id="state_dict_module_prefix", confidence=0.94 if pairs else 0.62, evidence=seen)


def _bare(key: str) -> str:
    for wrapper in _WRAPPERS:
        key = key.replace(wrapper, "")
    return key


FINDERS = (by_text("state_dict_module_prefix", _find_prefix),)
