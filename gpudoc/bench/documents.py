"""Records and readings as JSON and back; an unreadable record raises a GpudocError that names the problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gpudoc.bench.model import (
    SCHEMA,
    Ceiling,
    Doubt,
    Measurement,
    NoCeiling,
    NotMeasured,
    RawReading,
    Record,
)
from gpudoc.control_characters import to_json
from gpudoc.errors import GpudocError
from gpudoc.facts.redact import private
from gpudoc.reading import UnreadableError, read_text
from gpudoc.writing import write_whole

_MOST_BYTES = 64 << 20


class _MeasurementDoc(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    name: str
    device: str
    parameters: dict[str, str | int | float]
    unit: str
    better: Literal["higher", "lower"] = "higher"
    value: float | None
    low: float
    high: float
    samples: tuple[tuple[float, ...], ...] = Field(min_length=1)
    p10: float
    p50: float
    p90: float
    context: dict[str, float] = {}
    ceiling: float | None = None
    ceiling_from: str = ""
    ceiling_at_measured_clock: float | None = None
    doubts: tuple[Doubt, ...] = ()
    corrupted: str = ""


class RecordDocument(BaseModel):
    """The fields that are read from a document gpudoc.bench.v1."""

    document: Literal["gpudoc.bench.v1"] = Field(alias="schema")
    environment: dict[str, str | int | float]
    measurements: list[_MeasurementDoc]
    not_measured: tuple[NotMeasured, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0


_READING = TypeAdapter(RawReading)


def reading_to_json(reading: RawReading) -> dict[str, object]:
    """The reading as plain values."""
    return asdict(reading)


def reading_from_json(values: Mapping[str, object]) -> RawReading:
    """The reading in `values`; pydantic's ValidationError if they are not a reading."""
    return _READING.validate_python(values)


def record_to_json(record: Record) -> dict[str, object]:
    """The document gpudoc.bench.v1."""
    return {
        "schema": SCHEMA,
        "environment": dict(record.environment),
        "measurements": [_measurement_to_json(row) for row in record.measurements],
        "findings": [asdict(finding) for finding in record.findings],
        "not_measured": [asdict(one) for one in record.not_measured],
        "interrupted": record.interrupted,
        "seconds": round(record.seconds, 2),
    }


def _measurement_to_json(row: Measurement) -> dict[str, object]:
    ceiling: float | None = None
    at_measured: float | None = None
    match row.ceiling:
        case Ceiling(value, formula, at_clock):
            ceiling, ceiling_from, at_measured = value, formula, at_clock
        case NoCeiling(because):
            ceiling_from = f"no ceiling: {because}"
    return {
        "name": row.name,
        "device": row.device,
        "parameters": dict(row.parameters),
        "value": _short(row.value),
        "unit": row.unit,
        "better": row.better,
        "low": _short(row.low),
        "high": _short(row.high),
        "samples": [[_short(value) for value in one] for one in row.rounds],
        "p10": _short(row.p10),
        "p50": _short(row.p50),
        "p90": _short(row.p90),
        "ceiling": _short(ceiling),
        "ceiling_from": ceiling_from,
        "ceiling_at_measured_clock": _short(at_measured),
        "share_of_ceiling": _short(row.share_of_ceiling),
        "share_at_measured_clock": _short(row.share_at_measured_clock),
        "context": {name: _short(value) for name, value in row.context.items()},
        "doubts": [asdict(doubt) for doubt in row.doubts],
        "corrupted": row.corrupted,
    }


def _short(value: float | None) -> float | None:
    """The value with six significant digits, which is the clock's resolution; None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def load_record(path: Path) -> Record:
    """The record in `path`; GpudocError (exit 2) if it is missing, not JSON, or another document."""
    hint = "gpudoc bench --out FILE writes one"
    try:
        text = read_text(path, "bench record", most_bytes=_MOST_BYTES)
    except UnreadableError as problem:
        raise GpudocError(f"cannot read the old record: {problem.message}", hint=problem.hint or hint) from None
    try:
        document = RecordDocument.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise GpudocError(f"not a {SCHEMA} record: {path}: {place}: {first['msg']}", hint=hint) from error
    return Record(
        environment=document.environment,
        measurements=tuple(_measurement(row) for row in document.measurements),
        not_measured=document.not_measured,
        interrupted=document.interrupted,
        seconds=document.seconds,
    )


def _measurement(row: _MeasurementDoc) -> Measurement:
    ceiling: Ceiling | NoCeiling = NoCeiling(row.ceiling_from.removeprefix("no ceiling: "))
    if row.ceiling is not None:
        ceiling = Ceiling(row.ceiling, row.ceiling_from, row.ceiling_at_measured_clock)
    same = {name: value for name, value in row if name not in ("samples", "ceiling_from", "ceiling_at_measured_clock")}
    return Measurement(**{**same, "rounds": row.samples, "ceiling": ceiling})


def save_record(path: Path, record: Record) -> None:
    """Write the record, whole or not at all; GpudocError if the file cannot be written."""
    text = to_json(private(record_to_json(record)), indent=1) + "\n"
    write_whole(path, text, hint="--out bench.json")
