"""The evidence from one look at a script: where its steps spend their time, what they keep, and where it died."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoc.facts.host import cpus_usable
from gpudoc.fix.model import HotLine, PaddedInput, RunEvidence
from gpudoc.patterns import MULTILINE, Pattern
from gpudoc.script.hook import ProcessSeen
from gpudoc.script.look import ScriptLook
from gpudoc.script.messages import ErrorSeen, StepsSeen
from gpudoc.script.outcome import LaunchRecord
from gpudoc.stats import fit_line, median

# a step that leaves less behind counts as leaving nothing
_LEAST_GROWTH_BYTES, _LEAST_POINTS = 64 << 10, 4
_FRAGMENTED = 0.1
# the share of the peak by which an evaluation must exceed the steps
_GROWN = 0.05
# the least share of padding in a model's input: less hardly justifies another collate_fn
_PADDED = 0.2
_FRAME = Pattern(r'^[ \t]*File "([^"\n]{1,4096})", line (\d{1,9})', MULTILINE)


def read_evidence(told: LaunchRecord, look: ScriptLook | None, workers: int | None) -> RunEvidence:
    """The evidence from a launch whose order asked for lines; `workers` is the number that loading needs."""
    first = next((one for one in told.seen if one.trains), None)
    error = told.error
    died = None if error is None or error.shortage is None else _died_at(error)
    if first is None or first.lines is None:
        return RunEvidence(hot=(), died_at=died)
    seen = first.lines
    looks = max(1, seen.looks)
    loader = None if look is None else look.training
    idle = look is not None and not look.on_gpu and seen.threads < int(cpus_usable())
    return RunEvidence(
        hot=tuple(HotLine(Path(file), line, count / looks) for file, line, count in seen.hot),
        own=tuple(HotLine(Path(file), line, count / looks) for file, line, count in seen.own),
        padded=tuple(
            PaddedInput(Path(file), line, share, value)
            for file, line, share, value in sorted(seen.padded, key=lambda one: -one[2])
            if share >= _PADDED
        ),
        passes=tuple((Path(file), line, count) for file, line, count in seen.passes),
        died_at=died,
        growth_bytes=_growth(first.steps),
        num_workers=workers,
        loader_line=None if loader is None or not loader.line else (_whole(loader.file), loader.line),
        anomaly_detection=seen.anomaly,
        cuda=look is not None and look.on_gpu,
        keeps_at=tuple((Path(file), line) for file, line in seen.keeps),
        no_backward_at=tuple((Path(file), line) for file, line in seen.no_backward),
        fragmented=error is not None and error.shortage is not None and _is_fragmented(error),
        threads=seen.threads if idle else None,
        worker_start_share=None if look is None else _worker_start_share(first, look),
        float64_share=seen.computing / looks if first.steps and first.steps[-1].parameters.endswith("float64") else 0.0,
        evaluated_after=seen.evaluated_after,
        evaluation_grows=_evaluation_grows(first),
        awaits_evaluation=seen.awaited,
    )


def files_of(evidence: RunEvidence, folder: Path) -> tuple[Path, ...]:
    """The files below `folder` that the evidence names, the one with the most time first."""
    named = [one.file for one in evidence.hot]
    named += [] if evidence.died_at is None else [evidence.died_at.file]
    named += [file for file, _ in (*evidence.keeps_at, *evidence.no_backward_at)]
    named += [] if evidence.loader_line is None else [evidence.loader_line[0]]
    return tuple(dict.fromkeys(file for file in named if file.is_relative_to(folder) and file.is_file()))


def _whole(file: str) -> Path:
    """The whole path of a stack's file; `python train.py` only has its name, relative to the folder of the start."""
    return Path.cwd() / file


def _growth(steps: Sequence[StepsSeen]) -> float | None:
    points = [(float(one.total.steps), float(one.peak_bytes)) for one in steps if one.peak_bytes is not None]
    kept = points[len(points) // 3 :]
    if len(kept) < _LEAST_POINTS:
        return None
    slope = fit_line(kept).slope
    return slope if slope >= _LEAST_GROWTH_BYTES else None


def _evaluation_grows(first: ProcessSeen) -> bool:
    grown = None if first.lines is None else first.lines.evaluation_bytes
    peak = max((one.peak_bytes for one in first.steps if one.peak_bytes is not None), default=0)
    return grown is not None and grown > _GROWN * peak > 0


def _worker_start_share(first: ProcessSeen, look: ScriptLook) -> float | None:
    """The share of an epoch until new workers deliver a batch; None if no second epoch began."""
    loader, length = look.feeding, 0 if look.feeding is None else look.feeding.length or 0
    if loader is None or not loader.num_workers or loader.persistent_workers or not length:
        return None
    waits = [wait for event in first.steps for wait in event.wait_s]
    steps = [seconds for event in first.steps for seconds in event.seconds]
    usual_s = median(waits)
    # the first epoch also waits for other things
    begun = range(length, len(waits), length)
    if not begun or len(steps) != len(waits):
        return None
    start_s = median([max(0.0, waits[index] - usual_s) for index in begun])
    return start_s / max(1e-9, start_s + length * look.step_s)


def _died_at(error: ErrorSeen) -> HotLine | None:
    frames = [(_whole(file), int(line)) for file, line in _FRAME.findall(error.traceback)]
    own = [one for one in frames if "site-packages" not in one[0].parts and "dist-packages" not in one[0].parts]
    return HotLine(*own[-1], 1.0) if own else None


def _is_fragmented(error: ErrorSeen) -> bool:
    """Whether more than a tenth of the allocator's memory lies in unused pieces."""
    return error.allocator.get("inactive_split", 0) > _FRAGMENTED * error.allocator.get("reserved", 0) > 0
