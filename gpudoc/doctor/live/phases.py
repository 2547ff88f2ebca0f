"""Find the part of training that a stack belongs to: pure rules on frames and on the text of the user's lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from gpudoc.facts.live.sources import is_library
from gpudoc.facts.process import Frame
from gpudoc.frozen import dataclass
from gpudoc.knowledge.stacks import Section, stack_rows
from gpudoc.patterns import Pattern


class Phase(str, Enum):
    """The activity of a training process's main thread; the value is the text for the user."""

    DATA_WAIT = "waiting for data"
    DATA_RECEIVE = "receiving batches"
    DATA_LOAD = "loading data in the main process"
    COLLATE = "collating in the main process"
    WORKER_START = "starting loader workers"
    TRANSFER = "copying to the device"
    SYNC = "waiting for the device"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COLLECTIVE = "communication"
    CHECKPOINT = "writing a checkpoint"
    LOGGING = "logging"
    COMPILE = "compiling"
    PYTHON = "your Python code"
    UNCLEAR = "your code"
    SLEEP = "sleeping or blocked"
    STARTUP = "start-up"
    LAUNCHER = "waiting for child processes"
    OTHER = "the framework"


COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
DATA = (Phase.DATA_WAIT, Phase.DATA_RECEIVE, Phase.DATA_LOAD, Phase.COLLATE, Phase.WORKER_START)
TRAINING = (*COMPUTE, Phase.DATA_WAIT, Phase.DATA_LOAD, Phase.COLLATE, Phase.SYNC)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One classified stack: its phase, and the user's line in it, None if there is none."""

    phase: Phase
    site: Frame | None


_IN_MODULE = Pattern(r"torch/nn/modules/module\.py")
_LOADER = Pattern(r"torch/utils/data/(dataloader|_utils/\w+)\.py$")
# files of Python's own library in which a thread waits for another one
_BLOCKED = Pattern(r"/lib/python3[^/]*/(threading|queue|selectors|subprocess|socket|ssl|multiprocessing/\w+)\.py$")
_FRAMEWORK = Pattern(r"-packages/(torch|lightning|pytorch_lightning|transformers|accelerate|timm|peft|trl)/")
_IMPORTS = Pattern(r"^<frozen importlib|/importlib/")


def own_line(stack: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code, None if all frames are a library's."""
    return next((frame for frame in reversed(stack) if not is_library(frame.file)), None)


def classify(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> Sighting:
    """The phase of one stack of a training process's main thread, outermost frame first."""
    site = own_line(stack)
    if any(_IMPORTS.search(frame.file) for frame in stack):
        return Sighting(Phase.STARTUP, site)
    phase = _data_phase(stack, lines) or _outer_phase(stack) or _inner_phase(stack, lines)
    return Sighting(phase, site)


def _outer_phase(stack: Sequence[Frame]) -> Phase | None:
    return next((phase for frame in stack if (phase := _phase_of_frame(frame, "outer")) is not None), None)


def _phase_of_frame(frame: Frame, section: Section) -> Phase | None:
    rows = (row for row in stack_rows(section) if row.fits_frame(frame.file, frame.function))
    return next((Phase[str(row.says["phase"])] for row in rows), None)


def _inner_phase(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> Phase:
    in_framework = False
    blocked = bool(stack) and bool(_BLOCKED.search(stack[-1].file))
    for frame in reversed(stack):
        phase = _phase_of_frame(frame, "inner")
        if phase is not None:
            return phase
        in_framework = in_framework or bool(_FRAMEWORK.search(frame.file))
        if not is_library(frame.file):
            if in_framework:
                return Phase.OTHER
            if blocked:
                return Phase.SLEEP
            inside_model = any(_IN_MODULE.search(f.file) and "_call_impl" in f.function for f in stack)
            return phase_of_line(lines.get((frame.file, frame.line), ""), frame is stack[-1], inside_model)
    return Phase.OTHER


def phase_of_line(text: str, is_leaf: bool, inside_model: bool) -> Phase:
    """The phase of a line of the user's code, if the stack below it names no phase."""
    if is_leaf:
        found = next((Phase[str(row.says["phase"])] for row in stack_rows("lines") if row.fits_line(text)), None)
        if found is not None:
            return Phase.FORWARD if inside_model and found is Phase.TRANSFER else found
    return Phase.UNCLEAR if is_leaf else Phase.PYTHON


def _data_phase(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> Phase | None:
    if not any(_LOADER.search(frame.file) for frame in stack):
        return None
    for row in stack_rows("loader"):
        # a frame without a line is not in Python code
        frames = [frame for frame in stack[-1:] if frame.line] if row.says.get("innermost") else stack
        fitting = [frame for frame in frames if row.fits_frame(frame.file, frame.function)]
        if "line" in row.says:
            fitting = [frame for frame in fitting if row.fits_line(lines.get((frame.file, frame.line), ""))]
        if fitting:
            return Phase[str(row.says["phase"])]
    return None
