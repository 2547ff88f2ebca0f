"""The output of `tune --target`: a table of the targets, the parts of the peak, and changes that make more fit."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.errors import ExitCode
from gpudoc.facts.redact import private
from gpudoc.plan.target import Rung, TargetAnswer, TargetsResult
from gpudoc.render import console, frame
from gpudoc.render.gpus import text_table
from gpudoc.render.table import Table
from gpudoc.units import format_bytes, format_seconds

_SHOWN_NOTES = 3
_COLUMNS = ("target", "memory", "precision", "largest batch", "likely", "peak", "peak at batch 1", "step")
_LEFT = ("target", "precision")
_RUNGS = ("change", "batch", "peak per GPU", "fits", "time", "moved")
_COLUMNS_MEAN = (
    "Batch: micro batch x accumulation x GPUs. Moved: the data that each GPU exchanges in one micro batch.",
    "Time: the least GPU time for each sample, relative to the whole batch at once.",
)
# parts below a thousandth of the peak are left out
_SMALLEST_SHARE = 1e-3


def show_targets(result: TargetsResult, *, as_json: bool = False, plain: bool = False) -> int:
    """Print the answer as text or as gpudoc.tune.v1; the exit code is 1 if no target fits even one sample."""
    if as_json:
        console.print_json(private({"schema": "gpudoc.tune.v1", "profile": None, "targets": result.documents()}))
    else:
        frame.show(render_targets(result, frame.form(plain, piped=frame.WIDE).width), plain=plain)
    return ExitCode.OK if any(answer.fits for answer in result.answers) else ExitCode.BAD_ANSWER


def render_targets(result: TargetsResult, width: int = frame.WIDE) -> str:
    """The whole answer as plain text; it says that every figure is a prediction."""
    lines = [
        f"{result.name}: {_count(result.num_parameters)} parameters, reference batch {result.reference_batch}.",
        "Predicted: nothing ran on a GPU.",
        "",
        *_table(result.answers, width),
        "",
        _composition(result.answers[0]),
    ]
    for answer in result.answers:
        lines += _ladder(answer, result.reference_batch, width)
    if result.probed:
        lines += [
            f"Not traced: {result.probed}.",
            "Two real steps on the CPU were measured instead, so the intervals are wide.",
        ]
    lines += [f"Assumed: {note}." for note in result.notes[:_SHOWN_NOTES]]
    lines.append("Peaks include the CUDA context, cuBLAS and fragmentation; a step takes at least the time shown.")
    return "\n".join(lines) + "\n"


def _table(answers: Sequence[TargetAnswer], width: int) -> list[str]:
    rows = tuple(_row(answer) for answer in answers)
    table = Table(headings=_COLUMNS, rows=rows, numeric=frozenset(_COLUMNS) - set(_LEFT))
    return text_table(table, width)


def _row(answer: TargetAnswer) -> tuple[str, ...]:
    low, high = answer.largest_batch_interval
    return (
        answer.target.name,
        format_bytes(answer.target.memory_bytes),
        answer.precision,
        f"{answer.largest_batch:,}" if answer.fits else "does not fit",
        f"{low:,} to {high:,}" if high else "",
        format_bytes(answer.peak_bytes) if answer.fits else "",
        format_bytes(answer.peak_bytes_at_1),
        f">= {format_seconds(answer.least_step_s)}" if answer.least_step_s is not None and answer.fits else "",
    )


def _composition(answer: TargetAnswer) -> str:
    batch = max(1, answer.largest_batch)
    total = sum(answer.composition.values())
    parts = [
        f"{kind.value} {format_bytes(size)}"
        for kind, size in sorted(answer.composition.items(), key=lambda item: -item[1])
        if size > total * _SMALLEST_SHARE
    ]
    each = format_bytes(answer.bytes_per_sample)
    return f"Batch {batch:,} on {answer.target.name}: {', '.join(parts)}; each sample adds {each}."


def _ladder(answer: TargetAnswer, reference: int, width: int) -> list[str]:
    if answer.largest_batch >= reference:
        return []
    what = "not even one sample fits" if not answer.fits else f"batch {reference} does not fit at once"
    if not any(rung.fits for rung in answer.ladder):
        end = "and no change that gpudoc knows makes one fit; use a larger card."
    else:
        end = "Changes that let it train, each on top of the previous ones, up to the first that fits:"
    head = f"{answer.target.name}: {what}{',' if end.startswith('and') else '.'} {end}"
    rows = tuple(_rung(rung) for rung in answer.ladder)
    if not rows:
        return ["", head]
    table = Table(headings=_RUNGS, rows=rows, numeric=frozenset(_RUNGS[1:]))
    return ["", head, *text_table(table, width), *_what_to_do(answer.ladder)]


def _rung(rung: Rung) -> tuple[str, ...]:
    batch = f"{rung.micro_batch} x {rung.accumulation}" + (f" x {rung.gpus}" if rung.gpus > 1 else "")
    return (
        rung.change,
        batch,
        format_bytes(rung.peak_bytes),
        "yes" if rung.fits else "no",
        "" if rung.slowdown is None else f">= {rung.slowdown:.2f}",
        format_bytes(rung.moved_bytes) if rung.moved_bytes else "",
    )


def _what_to_do(ladder: Sequence[Rung]) -> list[str]:
    """The steps to the first rung that fits, and the cost of offloading outside of the GPU."""
    first = next((number for number, rung in enumerate(ladder) if rung.fits), None)
    lines = []
    if first is not None:
        steps = "; ".join(rung.how for rung in ladder[: first + 1] if rung is ladder[first] or not rung.is_aside)
        lines.append(f"The first that fits needs: {steps}. Predicted, not run.")
    lines += [
        f"{rung.change}: {format_bytes(rung.host_bytes)} of the host's memory for each GPU, and the update runs there."
        for rung in ladder
        if rung.host_bytes and rung.fits
    ]
    return [*lines, *_COLUMNS_MEAN]


def _count(number: int) -> str:
    if number >= 10**9:
        return f"{number / 1e9:.2f} billion"
    return f"{number / 1e6:.1f} million" if number >= 10**6 else f"{number:,}"
