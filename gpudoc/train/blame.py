"""Attributes errors of a user's data set, collate, model or loss to their file and line."""

from __future__ import annotations

import os
import traceback

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.process import OWN_FOLDER, last_own
from gpudoc.patterns import Pattern
from gpudoc.train.data.reader import SAMPLE_NOTE
from gpudoc.workload.batch import Batch, shapes

# messages of torch's default collate about samples that do not fit together
_COLLATE_SIGNS = (
    "equal size",
    "default_collate",
    "each element in list of batch",
    "resize storage",
    "inconsistent tensor",
)
_WORKER = Pattern(r"Caught (\w+) in DataLoader worker process")
# after these faults a device is unusable until the process ends
_KERNEL_FAULTS = (
    "device-side assert",
    "an illegal memory access",
    "misaligned address",
    "unspecified launch failure",
)
# torch adds to every CUDA error how to see assertions on the device
_ADVICE = "TORCH_USE_CUDA_DSA"
_SAMPLE = Pattern(rf"{SAMPLE_NOTE} (-?\d+)\n?")
_FRAME = Pattern(r'File "([^"]+)", line (\d+)')


class KernelError(GpudocError):
    """A kernel of the user's code failed on the GPU, which this process can no longer use."""

    is_abrupt = True


def in_data(problem: Exception, indices: tuple[int, ...]) -> GpudocError:
    """An error of the data set or its collate as a message that the user can act on; a GpudocError stays as it is."""
    if isinstance(problem, GpudocError):
        return problem
    text = str(problem)
    if any(sign in text for sign in _COLLATE_SIGNS):
        said = _last_line(text)
        return GpudocError(
            f"the samples cannot be collated into a batch: {said}",
            hint="data.collate: yourmodule:function in the config can pad or join them",
        )
    shown = ", ".join(map(str, indices[:4])) + (", ..." if len(indices) > 4 else "")
    kind, place = type(problem).__name__, users_place(problem)
    notes = "\n".join([*getattr(problem, "__notes__", ()), text])
    noted = _SAMPLE.search(notes)
    which = f"sample {noted[1]}" if noted else f"the samples {shown}"
    text = _SAMPLE.sub("", text)
    worker = _WORKER.search(text)
    if worker is not None:
        kind = worker[1]
        place = last_own([(name, int(line)) for name, line in _FRAME.findall(text)])
        text = _last_line(text).removeprefix(f"{kind}: ")
    return GpudocError(
        f"the data set failed while reading {which}: {kind}: {text}{_at(place)}",
        exit_code=ExitCode.BAD_ANSWER,
    )


def in_model(problem: Exception, batch: Batch, first: bool) -> GpudocError:
    """An error of the model or the loss, with the shapes of the batch; exit 2 if not even one step worked."""
    if isinstance(problem, GpudocError):
        return problem
    said = f"{type(problem).__name__}: {problem}{_at(users_place(problem))}"
    has_none = "does not have a deterministic implementation" in said
    return GpudocError(
        f"an error in the model or the loss: {said}; the batch was {shapes(batch) or type(batch).__name__}",
        hint="use another operation, or --set deterministic=false"
        if has_none
        else "--verbose shows the whole traceback",
        exit_code=ExitCode.NOT_DONE if first else ExitCode.BAD_ANSWER,
    )


def in_kernel(problem: Exception, step: int) -> Exception:
    """The fault of a kernel as a message that the user can act on; other errors stay as they are.

    A kernel runs at the same time as Python, so a later call that accesses the device raises the error.
    """
    raw = problem.__cause__ or problem
    rows = [row for row in str(raw).splitlines() if _ADVICE not in row]
    said = next((row for row in rows for sign in _KERNEL_FAULTS if sign in row), None)
    if said is None or not isinstance(raw, RuntimeError):
        return problem
    hint = "look for a label or token id that is out of range: it has no row in the loss or the embedding"
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        said += _at(users_place(raw))
    else:
        hint = f"run it again with CUDA_LAUNCH_BLOCKING=1, which names the line; the usual reason: {hint[9:]}"
    told = KernelError(f"a kernel failed on the GPU by step {step}: {said}", hint=hint, exit_code=ExitCode.BAD_ANSWER)
    # its frames keep tensors in pinned memory alive: freeing one calls the device, which would abort the process
    told.__cause__ = raw
    return told


def users_place(problem: Exception) -> str | None:
    """'file:line' of the innermost frame that is neither gpudoc's, nor Python's, nor an installed package's."""
    return last_own([(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(problem.__traceback__)])


def users_traceback(problem: BaseException) -> str:
    """The traceback without gpudoc's frames: from the user's first frame on, else the frames after gpudoc's."""
    told = traceback.TracebackException.from_exception(problem)
    link: traceback.TracebackException | None = told
    while link is not None:
        link.stack = traceback.StackSummary.from_list(_without_ours(list(link.stack)))
        link = link.__cause__ or link.__context__
    return "".join(told.format())


def _without_ours(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    theirs = [n for n, frame in enumerate(frames) if last_own([(frame.filename, frame.lineno or 0)])]
    ours = [n for n, frame in enumerate(frames) if frame.filename.startswith(OWN_FOLDER)]
    begin = theirs[0] if theirs else ours[-1] + 1 if ours else 0
    return [frame for frame in frames[begin:] if not frame.filename.startswith(OWN_FOLDER)] or frames


def _at(place: str | None) -> str:
    return f" ({place})" if place else ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), text)
