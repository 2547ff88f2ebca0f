"""Judge a trace of steps: the parts of a step that nothing overlaps, and the gain without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpudoc.control_characters import escape_line
from gpudoc.doctor.live.gain import without
from gpudoc.doctor.live.say import estimated, finding, percent
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.readers.timeline import StepPart, Timeline
from gpudoc.patterns import Pattern
from gpudoc.units import format_count

TRACE = "the trace"
# below these shares, a fix gains less than the difference between two steps
_WAIT, _COPY, _TALK = 0.10, 0.05, 0.10
# a device that computes for this share of the time is the limit
_BUSY = 0.85
# a file, a line and a function in safe characters, since anybody may have chosen the names in a trace
_PLACE = Pattern(r"[\w.:/+@% <>-]+")
# the confidence of findings from a trace with only a start or one step
_UNSTEADY = 0.3


def _find(name: str, judge: Callable[[Timeline], Finding | None]) -> Finder:
    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        assert evidence.timeline is not None
        found = judge(evidence.timeline)
        if found is not None:
            yield found if evidence.timeline.is_steady else replace(found, severity="info", confidence=_UNSTEADY)

    return Finder(id=name, find=find, reads="trace")


def _find_part(name: str, part: StepPart, least: float, title: str, *, on_device: bool = False) -> Finder:
    """The finder of a part of the step by its share alone; `title` has a placeholder for its time."""

    def judge(timeline: Timeline) -> Finding | None:
        if (on_device and timeline.device is None) or timeline.share(part) < least:
            return None
        return _finding(name, timeline, part, title.format(_a_step(timeline, part)))

    return _find(name, judge)


def judge_data(timeline: Timeline) -> Finding | None:
    """Steps that wait for their data."""
    if timeline.share(StepPart.DATA) < _WAIT:
        return None
    alone = any("_SingleProcess" in span.name for span in timeline.trace.host.get("data", ()))
    title = f"{_a_step(timeline, StepPart.DATA)} is spent loading data" + (" in the main process" if alone else "")
    return _finding("too_few_workers" if alone else "dataloader_bottleneck", timeline, StepPart.DATA, title)


def judge_sync(timeline: Timeline) -> Finding | None:
    """A GPU without work because the main thread waited for it to read a value."""
    if timeline.device is None or timeline.share(StepPart.SYNC) < _WAIT:
        return None
    title = f"The GPU is idle for {_a_step(timeline, StepPart.SYNC)} after values were read from it"
    at = [place for place, _ in timeline.places.get(StepPart.SYNC, ()) if _PLACE.fullmatch(place)]
    say = f"Read values in {at[0]} only every 50 to 100 steps, and keep sums on the GPU in between." if at else ""
    fix = (Remedy(say=say),) if at else ()
    return _finding("gpu_sync_each_step", timeline, StepPart.SYNC, title, fix=fix)


def judge_copies(timeline: Timeline) -> Finding | None:
    """Copies from pageable memory that do not overlap with computing."""
    pageable = min(timeline.pageable_ms, timeline.parts.get(StepPart.COPY, 0.0))
    if timeline.share(StepPart.COPY) < _COPY or pageable < 0.5 * timeline.parts[StepPart.COPY]:
        return None
    title = f"{_a_step(timeline, StepPart.COPY)} is spent on copies from pageable memory"
    return _finding("pageable_copies", timeline, StepPart.COPY, title)


def judge_compute(timeline: Timeline) -> Finding | None:
    """A device that computes nearly all the time, which is healthy."""
    share = timeline.share(StepPart.COMPUTE)
    if timeline.device is None or share < _BUSY:
        return None
    seen = (Observation("computing", f"{timeline.parts[StepPart.COMPUTE]:.1f} ms a step, {percent(share)}", TRACE),)
    title = f"The GPU computes {percent(share)} of the time"
    return Finding(id="compute_bound", severity="info", confidence=0.9, title=title, evidence=seen)


def _a_step(timeline: Timeline, part: StepPart) -> str:
    """'12.3 ms of each step (34 %)'."""
    each = "each step" if timeline.steps_are_marked else "the trace"
    return f"{timeline.parts[part]:.1f} ms of {each} ({percent(timeline.share(part))})"


def _finding(name: str, timeline: Timeline, part: StepPart, title: str, *, fix: Sequence[Remedy] = ()) -> Finding:
    share = timeline.share(part)
    text = f"{timeline.parts[part]:.1f} of {timeline.step_ms:.1f} ms a step"
    seen = [Observation(part.value, f"{text}, over {format_count(timeline.num_steps, 'step')}", TRACE)]
    places = timeline.places.get(part, ())
    seen += [Observation("at", f"{escape_line(place)}  {ms:.1f} ms a step", TRACE) for place, ms in places]
    return finding(name, lost=share, sure=0.7, title=title, evidence=(*seen, estimated(without(share))), fix=fix)


FINDERS = (
    _find("dataloader_bottleneck", judge_data),
    _find("gpu_sync_each_step", judge_sync),
    _find_part(
        "launch_bound", StepPart.LAUNCH, _WAIT, "The GPU waits {} for its next kernel to be launched", on_device=True
    ),
    _find_part("python_bound", StepPart.PYTHON, _WAIT, "{} is spent in Python outside operators and the loader"),
    _find_part(
        "communication_bound",
        StepPart.COMMUNICATION,
        _TALK,
        "{} is communication that does not overlap with computing",
    ),
    _find("pageable_copies", judge_copies),
    _find("compute_bound", judge_compute),
)
