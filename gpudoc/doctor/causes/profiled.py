"""Tables and advice that profilers print: whose share of the step is large enough to be the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudoc.doctor.causes.sign import by_text, quote
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_MOST_ROWS = 400


@dataclass(frozen=True, slots=True)
class _Share:
    """A line with a share in percent (its group `share`), and from how much on it is the cause."""

    cause: str
    line: Pattern
    at_least: float
    sure: float = 0.8


def _lightning(actions: str) -> Pattern:
    # "[Callback]ModelCheckpoint{...}.on_train_batch_end  | 0.41 | 900 | 369.1 | 41.02 |": the share is the last column
    return Pattern(
        rf"(?im)^[| ]*[^\n|]{{0,60}}(?:{actions})[^\n|]{{0,160}}\|\s*[\d.]+(?:e[+-]?\d+)?\s*\|\s*\d+\s*\|\s*[\d.]+\s*\|"
        r"\s*(?P<share>\d{1,3}\.\d+)\s*\|?\s*$"
    )


def _advised(what: str) -> Pattern:
    return Pattern(rf"(?i)\b(?P<share>\d{{1,3}}(?:\.\d+)?)\s*% of the (?:total )?step time[^.\n]{{0,40}}{what}")


_SHARES = (
    # torch's profiler in TensorBoard: https://github.com/pytorch/kineto, tb_plugin, overall_parser
    _Share("dataloader_bottleneck", _advised("in dataloader"), 25),
    _Share("communication_bound", _advised("in communication"), 20, 0.84),
    # TensorFlow's: https://www.tensorflow.org/guide/profiler
    _Share("launch_bound", _advised("kernel launch"), 15, 0.84),
    _Share("python_bound", _advised("all others"), 25, 0.7),
    _Share("dataloader_bottleneck", _advised("waiting for input"), 25, 0.84),
    # Lightning's SimpleProfiler
    _Share("pageable_copies", _lightning(r"batch_to_device|transfer_batch_to_device"), 20, 0.72),
    _Share("checkpoint_too_often", _lightning(r"ModelCheckpoint|save_checkpoint"), 15),
    _Share("logging_each_step", _lightning(r"ProgressBar|LearningRateMonitor|\bLogger\b|log_metrics"), 15),
    # kernels of collectives in the tables of torch.profiler and of nsys
    _Share(
        "communication_bound",
        Pattern(r"(?im)^\s*(?:void )?nccl(?:Dev)?Kernel[^\n]{0,240}?\s(?P<share>[2-9]\d\.\d+|100\.0+)%"),
        25,
        0.84,
    ),
    _Share(
        "communication_bound",
        Pattern(r"(?im)^\s*(?P<share>\d{1,3}\.\d+)%?\s[\d, .]{6,160}\s(?:void )?nccl(?:Dev)?Kernel"),
        25,
        0.84,
    ),
)
# all of a run, and its backward pass with everything else beside it
_NO_SHARE_OVER = 100.0


def _find_shares(text: Text) -> Iterator[Finding | Skip]:
    """A line of a profile whose share is large."""
    for share in _SHARES:
        rows = [(float(row["share"]), row) for row in text.find_all(share.line, most=_MOST_ROWS)]
        large = [row for row in rows if share.at_least <= row[0] <= _NO_SHARE_OVER]
        if large:
            _, row = max(large, key=lambda found: found[0])
            yield Finding(id=share.cause, confidence=share.sure, severity="warning", evidence=(quote(row, "profile"),))


# DeepSpeed with wall_clock_breakdown: each row holds the times of one step
_BREAKDOWN = Pattern(
    r"(?i)\bfwd(?:_microstep)?: (?P<fwd>[\d.]+) \| bwd(?:_microstep)?: (?P<bwd>[\d.]+) \| bwd_inner(?:_microstep)?:"
    r" [\d.]+ \| "
    r"bwd_allreduce(?:_microstep)?: (?P<reduce>[\d.]+) \| step(?:_microstep)?: (?P<step>[\d.]+)"
)
_REDUCED_TOO_LONG = 0.25


def _find_breakdown(text: Text) -> Iterator[Finding | Skip]:
    """The reduction of the gradients in the times of each step."""
    rows = list(text.find_all(_BREAKDOWN, most=_MOST_ROWS))
    steady = rows[1:] or rows
    whole = sum(float(r["fwd"]) + float(r["bwd"]) + float(r["step"]) for r in steady)
    reduced = sum(float(r["reduce"]) for r in steady)
    if whole > 0 and _REDUCED_TOO_LONG * whole <= reduced <= whole:
        value = f"{reduced / whole:.0%} of {len(steady)} logged steps is the reduction of gradients"
        seen = (observe("profile", value, steady[0].line.origin),)
        yield Finding(id="communication_bound", confidence=0.86, severity="warning", evidence=seen)


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
    by_text("communication_bound", _find_shares),
    by_text("communication_bound", _find_breakdown),
    by_text("python_bound", _find_functions),
)
