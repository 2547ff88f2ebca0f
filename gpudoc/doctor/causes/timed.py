"""What a run's own numbers say by arithmetic: how long one rank or epoch took, and whose time that was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sign import by_text, quote, words
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# the others wait where one rank works alone
_GATE = words(
    r"\b(?:local_)?main_process_first\(|zero_first\(",
    "torch_distributed_zero_first",
    r"\bbarrier\b|wait_for_everyone|ncclUniqueId|store->get",
)
# a progress bar: the time that it ran, and what it counted
_BAR = Pattern(r"(?m)^[^\n]{0,80}?\d+%\|[^\n]{0,200}?\[(?:(\d+):)?(\d\d?):(\d\d)<")
# the collectives' own limits: ten minutes since torch 2.1, thirty before and for the store
_LIMITS_SECONDS = (600, 1800)
_EARLY_SECONDS, _LATE_SECONDS = 15, 240


def _find_clock(text: Text) -> Iterator[Finding | Skip]:
    """Work before training that ran for exactly as long as the other ranks may wait."""
    gate = text.find(_GATE)
    if gate is None or text.find(RAN_OUT):
        return
    for bar in list(text.find_all(_BAR, most=60))[::-1]:
        seconds = int(bar[1] or 0) * 3600 + int(bar[2]) * 60 + int(bar[3])
        if any(limit - _EARLY_SECONDS <= seconds <= limit + _LATE_SECONDS for limit in _LIMITS_SECONDS):
            value = f"{seconds // 60} min {seconds % 60} s of work when it ended"
            seen = (observe("elapsed", value, bar.line.origin), quote(gate, "others wait"))
            yield Finding(id="nccl_timeout_one_rank_busy", confidence=0.86, evidence=seen)
            return


# tqdm at the end of an epoch: "469/469 [12:53<00:00"
_EPOCH_TIME = Pattern(r"(?<!\d)(\d{2,7})/\1 ?\[(?:(\d+):)?(\d+):(\d\d)<0?0:00")
_WARMED_BY, _FEWEST_EPOCHS, _LONG_SECONDS = 2.5, 3, 30


def _find_warming(text: Text) -> Iterator[Finding | Skip]:
    """Epochs that become much shorter by themselves: the first had to read from the storage, the later from memory."""
    rows = list(text.find_all(_EPOCH_TIME, most=20))
    seconds = [int(r[2] or 0) * 3600 + int(r[3]) * 60 + int(r[4]) for r in rows if r[1] == rows[0][1]]
    if len(seconds) < _FEWEST_EPOCHS or not all(later <= before for before, later in pairwise(seconds)):
        return
    if seconds[-1] > 0 and seconds[0] >= max(_WARMED_BY * seconds[-1], _LONG_SECONDS):
        value = f"{seconds[0]} s for the first pass over the data, {seconds[-1]} s for the last"
        seen = (observe("epochs", value, rows[0].line.origin),)
        yield Finding(id="slow_storage", confidence=0.66, severity="warning", evidence=seen)


_MOST_ROWS = 400
# cProfile: "1234 function calls (1200 primitive calls) in 61.205 seconds", then rows with each function's own time
_CALLS = Pattern(r"\d+ function calls(?: \(\d+ primitive calls\))? in (\d+(?:\.\d+)?) seconds")
_ROW = Pattern(r"(?m)^\s*[\d/]+ +(?P<own>\d+\.\d+) +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ +(?P<who>\S[^\n]*)$")
_OF_PACKAGES = ("site-packages", "dist-packages", "<frozen", "<string>", "/lib/python", "importlib")
_BUILTINS = (
    (
        "gpu_sync_each_step",
        ("method 'item'", "method 'cpu'", "method 'tolist'", "_cuda_synchronize", "'numpy' of 'torch"),
    ),
    ("dataloader_bottleneck", ("'acquire' of '_thread.lock'", "select.poll", "'poll' of")),
)
_OWN_SHARE = 0.3


def _find_functions(text: Text) -> Iterator[Finding | Skip]:
    """A function whose own time is a large part of all that was profiled."""
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


FINDERS = (
    by_text("nccl_timeout_one_rank_busy", _find_clock),
    by_text("slow_storage", _find_warming),
    by_text("python_bound", _find_functions),
)
