"""The result of the measurement over ranks: a row for each number of ranks, the verdict, the command that helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudoc.render.frame import WIDE, fold
from gpudoc.tune.model.scaling import NAMES, Cause, Scaling, ScalingPoint, SpeedSpan
from gpudoc.units import format_bytes, format_seconds

CAUSES: Mapping[Cause, str] = {
    "loader": "loader",
    "communication": "communication",
    "transfer": "transfer",
    "contention": "contention",
    "batch_too_small": "batch too small",
    "spread": "spread of the runs",
}
_LEFT = ("cause",)


def as_lines(scaling: Scaling, width: int = WIDE) -> list[str]:
    """The table and the sentences under it as plain text."""
    rows = _columns(table(scaling))
    if max(map(len, rows)) > width:
        # with few numbers of ranks and many columns, the transposed table is narrow
        rows = _columns(list(zip(*table(scaling), strict=True)))
    lines = [*fold(heading(scaling), width), "", *rows, ""]
    told = [f"{ranks_of(point)}: {point.why}" for point in scaling.points if point.why]
    told += [f"{ranks_of(point)}: {failure(point)}" for point in scaling.points if not point.samples_per_s]
    for sentence in (*told, *scaling.notes):
        lines += fold(f"  {sentence}", width, indent="    ")
    lines += ["", *fold(f"verdict  {scaling.verdict}", width, indent="         ")]
    return [*lines, f"next     {scaling.command}"] if scaling.command else lines


def heading(scaling: Scaling) -> str:
    """The measurement in one sentence."""
    return (
        f"scaling: micro batch {scaling.batch} on every rank (weak scaling), "
        f"{format_bytes(scaling.gradient_bytes)} of gradients exchanged per step"
    )


def table(scaling: Scaling) -> list[tuple[str, ...]]:
    """Headings and rows: speed, efficiency, the step, and the share of the step that each loss takes."""
    names = [name for name in NAMES if name != "transfer" or scaling.device == "cuda"]
    threads = scaling.device == "cpu"
    head = ["ranks", *(["threads"] if threads else []), "samples/s", "times one", "efficiency", "step", *names]
    rows = [(*head, *_LEFT)]
    for point in scaling.points:
        row = [f"{point.ranks}", *([f"{point.threads}"] if threads else [])]
        row += [_rate(point.samples_per_s), "" if point.speedup is None else f"{point.speedup:.2f}"]
        row += [_share(point.efficiency), "" if point.step_s is None else format_seconds(point.step_s)]
        row += [_share((point.losses or {}).get(name)) for name in names]
        rows.append((*row, cause_of(point)))
    return rows


def cause_of(point: ScalingPoint) -> str:
    """The name of the main loss, or how the ranks ended if they gave no figure."""
    if point.samples_per_s is None:
        return point.end.value
    return CAUSES[point.cause] if point.cause is not None else ("nothing much" if point.ranks > 1 else "")


def failure(point: ScalingPoint) -> str:
    """How ranks that gave no figure ended."""
    return f"{point.end.value}: {point.detail}" if point.detail else point.end.value


def ranks_of(point: ScalingPoint) -> str:
    """'1 rank', '2 ranks'."""
    return "1 rank" if point.ranks == 1 else f"{point.ranks} ranks"


def _rate(rate: SpeedSpan | None) -> str:
    return "" if rate is None else f"{rate.middle:,.4g}"


def _share(share: SpeedSpan | None) -> str:
    """A share with its uncertainty as plus or minus; a negative share is shown as 0."""
    if share is None:
        return ""
    doubt = max(share.high - share.middle, share.middle - share.low)
    return f"{max(0.0, share.middle):.0%} ±{doubt * 100:.0f}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            text.ljust(width) if name in _LEFT else text.rjust(width)
            for name, text, width in zip(rows[0], row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
