"""Fleet records as JSON and back; an unreadable one raises a GpudocError that names the fault and its place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast, get_args

from gpudoc.control_characters import escape_line, to_json
from gpudoc.doctor.document import dump_finding, load_finding
from gpudoc.doctor.model import Skipped, Verdict
from gpudoc.errors import GpudocError
from gpudoc.facts.model import NOT_READ, Absent, Fact
from gpudoc.facts.readers.snapshot import dump_facts, load_facts
from gpudoc.facts.redact import Redactor, private
from gpudoc.fleet.record import (
    SCHEMA,
    Better,
    Digest,
    FleetGpu,
    FleetNode,
    FleetReading,
    FleetRecord,
    Load,
    Measure,
    MissingPart,
    Parameter,
    Reason,
    Scope,
    Spot,
)
from gpudoc.reading import read_text
from gpudoc.writing import write_whole

_MOST_BYTES = 1 << 30
_HINT = "gpudoc bench --across --out fleet.json writes one"
_NODE_FACTS = ("id", "switch", "versions", "clock_offset_s", "clock_error_s", "findings_again")


class _WrongError(ValueError):
    """A value that a record cannot hold, with its place."""


def record_to_json(record: FleetRecord) -> dict[str, object]:
    """The document gpudoc.fleet.v1, without names of hosts or anything else that identifies people or places."""
    redactor = Redactor.of_this_process()
    for number, node in enumerate(record.nodes):
        if not isinstance(node.host, Absent):
            redactor.know_host(node.host, f"<node-{number}>")
    # many nodes send the same sentence
    cleaned: dict[str, str] = {}

    def clean(text: str) -> str:
        if text not in cleaned:
            cleaned[text] = redactor.text(text)
        return cleaned[text]

    return {
        "schema": SCHEMA,
        "made": {name: clean(value) if isinstance(value, str) else value for name, value in record.made.items()},
        "nodes": [_clean(_dump_node(node), clean) for node in record.nodes],
        "measures": [_dump_measure(measure, clean) for measure in record.measures],
        "digests": [_dump_digest(digest) for digest in record.digests],
        "interrupted": record.interrupted,
        "seconds": round(record.seconds, 2),
    }


def _clean(value: object, clean: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        # a finding needs its cards and their addresses; their ids identify nobody
        return {key: item if key == "id" else _clean(item, clean) for key, item in value.items()}
    return [_clean(item, clean) for item in value] if isinstance(value, list) else value


def _dump_node(node: FleetNode) -> dict[str, object]:
    plain = dump_facts(replace(node, host=NOT_READ, findings=(), unchecked=(), missing=None))
    plain["gpus"] = [dump_facts(gpu) for gpu in node.gpus]
    plain["findings"] = [dump_finding(finding) for finding in node.findings]
    plain["unchecked"] = [{"id": one.id, "because": one.because} for one in node.unchecked]
    plain["missing"] = None if node.missing is None else dump_facts(node.missing)
    return plain


def _dump_measure(measure: Measure, clean: Callable[[str], str]) -> dict[str, object]:
    return {
        "name": measure.name,
        "scope": measure.scope,
        "parameters": dict(measure.parameters),
        "unit": measure.unit,
        "better": measure.better,
        "load": measure.load,
        "attempt": measure.attempt,
        "readings": [_dump_reading(one, clean) for one in measure.readings],
    }


def _dump_reading(reading: FleetReading, clean: Callable[[str], str]) -> dict[str, object]:
    samples = [_short(value) for value in reading.samples if math.isfinite(value)]
    failed = reading.failed or ("" if samples else "no finite sample")
    plain: dict[str, object] = {"at": [_dump_spot(spot) for spot in reading.at], "samples": samples}
    context = {name: _short(value) for name, value in reading.context.items() if math.isfinite(value)}
    return plain | ({"context": context} if context else {}) | ({"failed": clean(failed)} if failed else {})


def _dump_digest(digest: Digest) -> dict[str, object]:
    plain: dict[str, object] = {
        "product": digest.product,
        "at": _dump_spot(digest.at),
        "seen": dict(digest.seen),
        "hot": digest.hot,
        "attempt": digest.attempt,
    }
    algorithm = digest.algorithm
    return plain | ({} if algorithm == NOT_READ else {"algorithm": _plain_fact(algorithm)})


def _plain_fact(fact: Fact[str]) -> object:
    return {"absent": fact.reason} if isinstance(fact, Absent) else fact


def _dump_spot(spot: Spot) -> list[int]:
    return [spot.node] if spot.gpu < 0 else [spot.node, spot.gpu]


def _short(value: float) -> float:
    """Six significant digits: the resolution of the clock."""
    return float(f"{value:.6g}")


def save_record(path: Path, record: FleetRecord) -> Path:
    """Write the document; GpudocError if it cannot be written."""
    return save_document(path, record_to_json(record))


def save_document(path: Path, document: Mapping[str, object]) -> Path:
    """Write a record's document, which may hold more than the record."""
    text = to_json(private(document), indent=None)
    # with a line for each part a pager can show a record of thousands of GPUs
    return write_whole(path, text.replace('},{"', '},\n{"') + "\n", hint="--out fleet.json")


def is_record(document: object) -> bool:
    """Whether a JSON value claims to be a fleet record, of any version."""
    return isinstance(document, Mapping) and str(document.get("schema", "")).startswith("gpudoc.fleet.")


def load_record(path: Path) -> FleetRecord:
    """The record in `path`; GpudocError (exit 2) if it is missing, cut off, not JSON, or another document."""
    return parse_record(read_text(path, "fleet record", most_bytes=_MOST_BYTES), str(path))


def parse_record(text: str, name: str) -> FleetRecord:
    """The record in `text`; GpudocError that names `name` and the place."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        if text.lstrip().startswith("{") and problem.pos >= len(text.rstrip()) - 1:
            raise GpudocError(f"{name} is cut off at {place}, so it was not written completely", hint=_HINT) from None
        raise GpudocError(f"{name} is not JSON: {problem.msg}, {place}", hint=_HINT) from None
    except (ValueError, RecursionError) as problem:
        raise GpudocError(f"{name} is not JSON in the form that gpudoc writes: {problem}", hint=_HINT) from None
    return load(document, name)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def load(document: object, name: str) -> FleetRecord:
    """The record of a JSON value; GpudocError that names the part that does not belong in a record."""
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if schema != SCHEMA:
        hint = "use the version of gpudoc that wrote it, or measure again" if is_record(document) else _HINT
        raise GpudocError(f"{name} has schema {schema!r}; this gpudoc reads {SCHEMA}", hint=hint)
    try:
        return _load(_mapping(_in_lines(document), name))
    except (_WrongError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as problem:
        said = f"{problem.args[0]} is missing" if isinstance(problem, KeyError) else str(problem)
        raise GpudocError(f"{name} is not a complete {SCHEMA} record: {said}", hint=_HINT) from None


def _in_lines(value: object) -> object:
    """The JSON value with each text on one line: text after a line end could look like a line of gpudoc's output."""
    if isinstance(value, str):
        return escape_line(value)
    if isinstance(value, Mapping):
        return {escape_line(key): _in_lines(item) for key, item in value.items()}
    # samples are a million numbers
    if isinstance(value, list) and not (value and isinstance(value[0], float)):
        return [_in_lines(item) for item in value]
    return value


def _load(document: Mapping[str, object]) -> FleetRecord:
    nodes = tuple(_load_node(_mapping(one, f"nodes[{i}]")) for i, one in enumerate(_list(document["nodes"], "nodes")))
    spots = {(number, -1): Spot(number) for number in range(len(nodes))}
    spots |= {(n, g): Spot(n, g) for n, node in enumerate(nodes) for g in range(len(node.gpus))}
    measures = enumerate(_list(document.get("measures", []), "measures"))
    digests = enumerate(_list(document.get("digests", []), "digests"))
    return FleetRecord(
        nodes=nodes,
        measures=tuple(_load_measure(_mapping(one, f"measures[{i}]"), spots, f"measures[{i}]") for i, one in measures),
        digests=tuple(_load_digest(_mapping(one, f"digests[{i}]"), spots, f"digests[{i}]") for i, one in digests),
        made=_parameters(document.get("made", {}), "made"),
        interrupted=document.get("interrupted", False) is True,
        seconds=_number(document.get("seconds", 0.0), "seconds"),
    )


def _load_node(plain: Mapping[str, object]) -> FleetNode:
    known = load_facts(FleetNode, {name: plain[name] for name in _NODE_FACTS if name in plain})
    gpus = _list(plain.get("gpus", []), "gpus")
    missing = plain.get("missing")
    doctor = plain.get("doctor", NOT_READ)
    if isinstance(doctor, Mapping):
        doctor = Absent(str(doctor.get("absent", "unreadable in the document")))
    return replace(
        known,
        gpus=tuple(load_facts(FleetGpu, _mapping(gpu, "a GPU")) for gpu in gpus),
        doctor=doctor if isinstance(doctor, Absent) else cast(Verdict, _one_of(doctor, Verdict, "doctor")),
        findings=tuple(load_finding(_mapping(f, "a finding")) for f in _list(plain.get("findings", []), "findings")),
        unchecked=tuple(
            Skipped(str(_mapping(s, "unchecked")["id"]), str(_mapping(s, "unchecked")["because"]))
            for s in _list(plain.get("unchecked", []), "unchecked")
        ),
        missing=None if missing is None else _load_missing(_mapping(missing, "missing")),
    )


def _load_missing(plain: Mapping[str, object]) -> MissingPart:
    reason = cast(Reason, _one_of(plain["reason"], Reason, "missing.reason"))
    attempts = int(_number(plain.get("attempts", 1), "missing.attempts"))
    return MissingPart(reason, str(plain.get("because", "")), str(plain.get("during", "")), attempts)


def _load_measure(plain: Mapping[str, object], spots: Mapping[tuple[int, int], Spot], place: str) -> Measure:
    readings = _list(plain["readings"], f"{place}.readings")
    return Measure(
        name=_text(plain["name"], f"{place}.name"),
        scope=cast(Scope, _one_of(plain["scope"], Scope, f"{place}.scope")),
        unit=_text(plain["unit"], f"{place}.unit"),
        parameters=_parameters(plain.get("parameters", {}), f"{place}.parameters"),
        better=cast(Better, _one_of(plain.get("better", "higher"), Better, f"{place}.better")),
        load=cast(Load, _one_of(plain.get("load", "alone"), Load, f"{place}.load")),
        attempt=int(_number(plain.get("attempt", 1), f"{place}.attempt")),
        readings=tuple(_load_reading(one, spots, place) for one in readings),
    )


def _load_reading(plain: object, spots: Mapping[tuple[int, int], Spot], place: str) -> FleetReading:
    one = _mapping(plain, f"{place}: a reading")
    samples = _samples(one["samples"], place)
    context = _mapping(one.get("context", {}), f"{place}.context")
    failed = str(one.get("failed", ""))
    return FleetReading(
        at=tuple(_spot(spot, spots, place) for spot in _list(one["at"], f"{place}.at")),
        samples=samples,
        context={name: _number(value, f"{place}: {name}") for name, value in context.items()},
        failed=failed or ("" if samples else "no sample in the record"),
    )


def _samples(value: object, place: str) -> tuple[float, ...]:
    """The samples, checked at once if all are finite floats (a record holds a million), else one by one."""
    values = _list(value, f"{place}.samples")
    if all(type(one) is float for one in values) and math.isfinite(sum(cast(Sequence[float], values))):
        return tuple(cast(Sequence[float], values))
    return tuple(_number(one, f"{place}: a sample") for one in values)


def _load_digest(plain: Mapping[str, object], spots: Mapping[tuple[int, int], Spot], place: str) -> Digest:
    algorithm = plain.get("algorithm", NOT_READ)
    seen = _mapping(plain["seen"], f"{place}.seen")
    return Digest(
        product=_text(plain["product"], f"{place}.product"),
        at=_spot(plain["at"], spots, place),
        seen={key: int(_number(count, f"{place}.seen")) for key, count in seen.items()},
        hot=plain.get("hot", False) is True,
        attempt=int(_number(plain.get("attempt", 1), f"{place}.attempt")),
        algorithm=algorithm if isinstance(algorithm, str | Absent) else Absent("not in the record"),
    )


def _spot(value: object, spots: Mapping[tuple[int, int], Spot], place: str) -> Spot:
    items = _list(value, f"{place}: a place")
    key = (items[0], items[1] if len(items) > 1 else -1) if items else ()
    found = spots.get(cast("tuple[int, int]", key))
    if found is None:
        raise _WrongError(f"{place} mentions {value}, but the record has no such node or GPU")
    return found


def _parameters(value: object, place: str) -> dict[str, Parameter]:
    plain = _mapping(value, place)
    return {name: item if isinstance(item, str | int | float) else str(item) for name, item in plain.items()}


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _WrongError(f"{place}: {value!r:.40} is not a number")
    return float(value)


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise _WrongError(f"{place}: {value!r:.40} is not text")
    return value


def _one_of(value: object, allowed: object, place: str) -> str:
    if value not in get_args(allowed):
        raise _WrongError(f"{place}: {value!r:.40} is not one of {', '.join(get_args(allowed))}")
    return str(value)


def _mapping(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _WrongError(f"{place} is {type(value).__name__}, not an object")
    return value


def _list(value: object, place: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise _WrongError(f"{place} is {type(value).__name__}, not a list")
    return value
