"""What loggers, launchers and containers put before each line, of which the rank tells streams apart."""

from __future__ import annotations

from gpudoc.patterns import Pattern

_RANK = Pattern(
    r"\s{0,2}(\[(?:rank|default|Rank|RANK|trainer|worker)[:= ]{0,2}\d{1,5}\]:?|"
    r"\[\d{1,3},\d{1,5}\]<std(?:out|err)>:|"
    r"\([\w.]{0,60} ?(?:pid|rank)=[^()]{1,80}\)|"
    r"\d{1,4}:(?= )|[\w.-]{1,60} {1,12}\|(?= ))"
)
_NOISE = Pattern(
    r"\s{0,2}(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?|"
    r"(?:stdout|stderr)(?: [FP]|:)|\[(?:ERROR|CRITICAL|WARNING|INFO|stderr)\]:?|"
    r"(?:ERROR|CRITICAL|FATAL)(?::[\w.]{1,60}:| -|:)|-(?= )|[\w.]{3,60} - (?:ERROR|CRITICAL) - )(?: |$)?|"
    r"\s{0,12}\|(?: |$)"
)
_BEFORE = "[(-|0123456789+"


def unprefixed(text: str) -> tuple[str, str]:
    """What names the rank of a line, and the line without that and without what loggers put before it."""
    rank = ""
    for _ in range(5):
        if text.lstrip()[:1] not in _BEFORE and not _names(text):
            break
        found = _RANK.match(text)
        if found is not None:
            rank += found[1].rstrip(":|").strip()
        else:
            found = _NOISE.match(text)
        if found is None or found.end() == 0:
            break
        text = text[found.end() :]
    return rank, text


def _names(text: str) -> bool:
    """Whether the line may begin with the name of a container, a stream or a level."""
    return "| " in text[:80] or text.startswith(("std", "ERROR", "CRITICAL", "FATAL")) or " - ERROR" in text[:80]
