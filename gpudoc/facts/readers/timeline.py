"""Where the time of a traced step went: the GPU's work that did not overlap, and what it waited for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from gpudoc.facts.readers.trace import GpuWork, Span, Trace
from gpudoc.frozen import dataclass

Interval = tuple[float, float]
# a pause up to this long between two kernels of one stream is normal
_PAUSE_US = 3.0
# a wait that ends this close to the moment when the GPU runs out of work is the cause
_CLOSE_US = 50.0
# Python between two launches after a wait is part of the wait's cost; if it is longer than this it is separate work
_SHORT_PYTHON_US = 200.0
_MS = 1000.0


class StepPart(str, Enum):
    """A part of a step. The first three are the device's work, the others what it, or the main thread, waited for."""

    COMPUTE = "computing"
    COMMUNICATION = "communication without overlap"
    COPY = "copies without overlap"
    DATA = "loading data"
    SYNC = "waiting for values to be read"
    LAUNCH = "launching work"
    PYTHON = "Python"
    QUEUE = "waiting for other streams or ranks"


class _Host(NamedTuple):
    """The main thread's intervals, each kind sorted and disjoint; `work` are operators and waits for the device."""

    data: list[Interval]
    sync: list[Interval]
    work: list[Interval]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A trace's steps as milliseconds per step by part; `device` is None if the trace contains no GPU.

    `hidden_ms` is the communication and copying that computing hid. `places` are the lines of the user's code that
    cause a part, with their milliseconds per step, the most time first.
    """

    trace: Trace
    device: int | None
    num_steps: int
    steps_are_marked: bool
    step_ms: float
    parts: Mapping[StepPart, float]
    hidden_ms: float
    places: Mapping[StepPart, tuple[tuple[str, float], ...]]
    pageable_ms: float

    @property
    def is_steady(self) -> bool:
        """Whether the trace marks steps after the first: a first step, or a start, cannot be judged."""
        return self.steps_are_marked and self.num_steps > 1

    @property
    def busy(self) -> float:
        """The share of the time in which the device worked, 0 to 1."""
        return sum(self.share(part) for part in (StepPart.COMPUTE, StepPart.COMMUNICATION, StepPart.COPY))

    def share(self, part: StepPart) -> float:
        """The share of a step, 0 to 1."""
        return self.parts.get(part, 0.0) / self.step_ms if self.step_ms else 0.0


def summarise(trace: Trace) -> Timeline:
    """The trace's steps by part: for the GPU that worked most, or for the main thread if there is no GPU."""
    window = _window(trace)
    device = max(trace.devices, key=lambda one: _length(_merged(trace.devices[one])), default=None)
    found = {kind: _clipped(_merged(spans), window) for kind, spans in trace.host.items()}
    host = _Host(found.get("data", []), found.get("sync", []), _union(found.get("op", []), found.get("sync", [])))
    if device is None:
        parts, blamed = _of_host(host, window), {StepPart.DATA: host.data}
        hidden = pageable = 0.0
    else:
        work = [one for one in trace.devices[device] if one.end > window[0] and one.start < window[1]]
        parts, blamed, hidden = _of_device(work, host, window)
        pageable = sum(one.end - one.start for one in work if "Pageable" in one.name)
    count = max(1, len(trace.steps))
    places = {part: _places(spans, trace.frames, count) for part, spans in blamed.items() if spans}
    return Timeline(
        trace=trace,
        device=device,
        num_steps=count,
        steps_are_marked=bool(trace.steps),
        step_ms=(window[1] - window[0]) / count / _MS,
        parts={part: us / count / _MS for part, us in parts.items()},
        hidden_ms=hidden / count / _MS,
        places=places,
        pageable_ms=pageable / count / _MS,
    )


def _window(trace: Trace) -> Interval:
    """From the first step to the end of the work that the last one launched; the whole trace if it has no steps."""
    if not trace.steps:
        every: list[Sequence[Span] | Sequence[GpuWork]] = [*trace.host.values(), *trace.devices.values()]
        spans = [(one.start, one.end) for group in every for one in group]
        return min(start for start, _ in spans), max(end for _, end in spans)
    last = max(end for _, end in trace.steps)
    asked = (one.end for work in trace.devices.values() for one in work if one.asked is not None and one.asked <= last)
    return trace.steps[0][0], max(last, max(asked, default=last))


def _of_host(host: _Host, window: Interval) -> dict[StepPart, float]:
    loading = _length(host.data)
    working = _length(_without(host.work, host.data))
    return {
        StepPart.COMPUTE: working,
        StepPart.DATA: loading,
        StepPart.PYTHON: max(0.0, window[1] - window[0] - working - loading),
    }


def _of_device(
    work: Sequence[GpuWork], host: _Host, window: Interval
) -> tuple[dict[StepPart, float], dict[StepPart, list[Interval]], float]:
    """The parts in microseconds, the main thread's intervals behind each wait, and what computing hid."""
    kinds = {
        kind: _clipped(_merged([one for one in work if one.kind == kind]), window)
        for kind in ("compute", "communication", "copy")
    }
    talk = _without(kinds["communication"], kinds["compute"])
    busy = _union(kinds["compute"], kinds["communication"])
    copy = _without(kinds["copy"], busy)
    busy = _union(busy, kinds["copy"])
    parts = {
        StepPart.COMPUTE: _length(kinds["compute"]),
        StepPart.COMMUNICATION: _length(talk),
        StepPart.COPY: _length(copy),
    }
    hidden = _length(kinds["communication"]) - _length(talk) + _length(kinds["copy"]) - _length(copy)
    blamed: dict[StepPart, list[Interval]] = {
        part: [] for part in (StepPart.DATA, StepPart.SYNC, StepPart.LAUNCH, StepPart.PYTHON)
    }
    starts = [one.start for one in work]
    for gap in _without([window], busy):
        for part, us, spans in _blame(gap, work, starts, host):
            parts[part] = parts.get(part, 0.0) + us
            blamed.setdefault(part, []).extend(spans)
    return parts, blamed, hidden


def _blame(
    gap: Interval, work: Sequence[GpuWork], starts: Sequence[float], host: _Host
) -> list[tuple[StepPart, float, list[Interval]]]:
    """The causes of a pause of the device: what the main thread did from then until it launched the next work."""
    begin, end = gap
    if end - begin <= _PAUSE_US:
        return [(StepPart.COMPUTE, end - begin, [])]
    later = bisect_left(starts, end)
    asked = work[later].asked if later < len(work) else None
    if asked is not None and asked < begin:
        # the next work was already queued when the device ran out of work
        return [(StepPart.QUEUE, end - begin, [])]
    waited = (begin, end if asked is None else max(begin, min(asked, end)))
    loading = _within(host.data, waited)
    rest = _without([waited], loading)
    launching = _clip_all(host.work, rest)
    python = _without(rest, launching)
    # the time from the call to the beginning of the work on the device
    way = end - waited[1]
    held = _held(host.sync, begin)
    if held is not None:
        short = [span for span in python if span[1] - span[0] <= _SHORT_PYTHON_US]
        python = [span for span in python if span[1] - span[0] > _SHORT_PYTHON_US]
        return [
            (StepPart.DATA, _length(loading), loading),
            (StepPart.SYNC, _length(launching) + _length(short) + way, [held]),
            (StepPart.PYTHON, _length(python), python),
        ]
    return [
        (StepPart.DATA, _length(loading), loading),
        (StepPart.LAUNCH, _length(launching) + way, launching),
        (StepPart.PYTHON, _length(python), python),
    ]


def _held(waits: Sequence[Interval], at: float) -> Interval | None:
    """The main thread's wait for the device at the moment when the device ran out of work; None if there was none."""
    last = bisect_right(waits, (at + _CLOSE_US, float("inf"))) - 1
    return waits[last] if last >= 0 and waits[last][1] >= at - _CLOSE_US else None


def _places(spans: Sequence[Interval], frames: Sequence[Span], count: int) -> tuple[tuple[str, float], ...]:
    """The user's innermost functions in which these intervals began, with milliseconds per step."""
    if not frames:
        return ()
    starts = [frame.start for frame in frames]
    found: dict[str, float] = {}
    for start, end in spans:
        for place in range(bisect_right(starts, start) - 1, max(-1, bisect_right(starts, start) - 200), -1):
            if frames[place].end >= start:
                found[frames[place].name] = found.get(frames[place].name, 0.0) + end - start
                break
    return tuple((name, us / count / _MS) for name, us in sorted(found.items(), key=lambda one: -one[1])[:3])


def _merged(spans: Iterable[Span | GpuWork]) -> list[Interval]:
    """Intervals in order, with touching ones joined."""
    return _joined((one.start, one.end) for one in spans)


def _joined(spans: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _union(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    return _joined(sorted((*one, *other)))


def _clipped(spans: Sequence[Interval], window: Interval) -> list[Interval]:
    return [(max(s, window[0]), min(e, window[1])) for s, e in spans if e > window[0] and s < window[1]]


def _within(spans: Sequence[Interval], window: Interval) -> list[Interval]:
    """The parts of sorted, disjoint intervals that lie in the window; a binary search skips the others."""
    first = max(0, bisect_right(spans, (window[0], float("inf"))) - 1)
    last = bisect_left(spans, (window[1], float("-inf")))
    return _clipped(spans[first:last], window)


def _clip_all(spans: Sequence[Interval], windows: Sequence[Interval]) -> list[Interval]:
    return [part for window in windows for part in _within(spans, window)]


def _without(spans: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """What remains of sorted, disjoint intervals after removing the intervals in `taken`."""
    left: list[Interval] = []
    for start, end in spans:
        at = start
        for begin, stop in _within(taken, (start, end)):
            if begin > at:
                left.append((at, begin))
            at = max(at, stop)
        if at < end:
            left.append((at, end))
    return left


def _length(spans: Iterable[Interval]) -> float:
    return sum(end - start for start, end in spans)
