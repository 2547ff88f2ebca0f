"""Find the function that takes the time, by arithmetic on a profile."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import by_text
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import Pattern

_MOST_ROWS = 400
# cProfile: "1234 function calls (1200 primitive calls) in 61.205 seconds", then rows with each function's own time
_CALLS = Pattern(r"(?<!\d)\d+ function calls(?: \(\d+ primitive calls\))? in (\d+(?:\.\d+)?) seconds")
_ROW = Pattern(r"(?m)^[^\S\n]*[\d/]+ +(?P<own>\d+\.\d+) +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ +(?P<who>\S[^\n]*)$")
_OF_PACKAGES = ("site-packages", "dist-packages", "<frozen", "<string>", "/lib/python", "importlib")
_BUILTINS = (
    (
        "gpu_sync_each_step",
        ("method 'item'", "method 'cpu'", "method 'tolist'", "_cuda_synchronize", "'numpy' of 'torch"),
    ),
    ("dataloader_bottleneck", ("'acquire' of '_thread.lock'", "select.poll", "'poll' of")),
)
_OWN_SHARE = 0.3


def _find_functions(text: CleanText) -> Iterator[Finding | Skip]:
    """A function whose own time is a large part of the whole profiled time."""
    calls = text.find(_CALLS)
    if calls is None or float(calls[1]) <= 0:
        return
    for row in text.find_all(_ROW, most=_MOST_ROWS):
        share = float(row["own"]) / float(calls[1])
        if not _OWN_SHARE <= share <= 1:
            continue
        who = row["who"]
        cause = next((cause for cause, names in _BUILTINS if any(name in who for name in names)), None)
        if cause is None and ".py:" in who and not any(part in who for part in _OF_PACKAGES):
            cause = "python_bound"
        if cause is not None:
            seen = (observe("profile", f"{share:.0%} of the time in {who.strip()}", row.line.origin),)
            yield Finding(id=cause, confidence=0.76, severity="warning", evidence=seen)
            return


FINDERS = (by_text("python_bound", _find_functions),)
