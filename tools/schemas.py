"""JSON Schemas of gpudoc's documents under docs/schemas, from the types that write and read them.

    python tools/schemas.py            # say which are out of date
    python tools/schemas.py --write

Fields may be added within a version, so unknown ones are allowed; a changed meaning is a new version and a new file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from gpudoc.bench.documents import RecordDocument
from gpudoc.doctor.document import SCHEMA as DOCTOR
from gpudoc.doctor.model import Cause, Remedy, Report
from gpudoc.facts.model import Absent
from gpudoc.fix.document import FixSummary
from gpudoc.fleet.record import SCHEMA as FLEET
from gpudoc.fleet.record import FleetRecord
from gpudoc.profile.model import Profile
from gpudoc.train.document import CommandSummary, RunSummary, WrittenSummary

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
TUNE, TRAIN, FIX = "gpudoc.tune.v1", "gpudoc.train.v1", "gpudoc.fix.v1"
_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
# the fields of a card; absent ones are left out there
_NAMED = ("index", "pci_address", "uuid")


class Records:
    """Schemas of the dataclasses that a document holds, each once, under its name."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}

    def of(self, kind: object) -> Schema:
        """The schema of the JSON value that gpudoc.facts.readers.snapshot writes for a value of this type."""
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}  # type: ignore[index]
        if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_typeddict(kind)):
            return self._record(kind)
        if isinstance(kind, type) and issubclass(kind, tuple):
            kind = tuple[tuple(dict.fromkeys(get_type_hints(kind).values()))]  # type: ignore[misc]
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in inner]}
        if isinstance(origin, type) and issubclass(origin, Sequence):
            items = [self.of(one) for one in inner if one is not Ellipsis]
            return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        return {}

    def _record(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.found:
            self.found[name] = {}
            self.found[name] = self._absent() if kind is Absent else self.fields(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _absent(self) -> Schema:
        reason = {"absent": {"type": "string", "description": "why it is not known"}}
        return {"type": "object", "properties": reason, "required": ["absent"], "additionalProperties": False}

    def fields(self, kind: type) -> Schema:
        """The schema of the object for a record of this type."""
        hints = get_type_hints(kind)
        if is_typeddict(kind):
            properties = {key: self.of(hint) for key, hint in hints.items()}
            always = [key for key in properties if key in kind.__required_keys__]  # type: ignore[attr-defined]
            said = {"description": _first_line(kind)} if kind.__doc__ else {}
            return {"type": "object", **said, "properties": properties, "required": always}
        kept = {f.metadata.get("key", f.name): hints[f.name] for f in dataclasses.fields(kind)}
        properties = {key: self.of(hint) for key, hint in kept.items() if key is not None}
        always = [key for key, hint in kept.items() if key is not None and _is_always_written(hint)]
        return {"type": "object", "description": _first_line(kind), "properties": properties, "required": always}


def _is_always_written(hint: object) -> bool:
    """Whether every document has a field of this type: not if it may be absent or is an empty object."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return Absent not in get_args(hint)
    is_record = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    return not is_record and not (isinstance(origin, type) and issubclass(origin, Mapping))


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").split("\n", 1)[0]


def doctor() -> Schema:
    """What `gpudoc doctor --json` prints; a watched job adds `watch` and `command`."""
    records = Records()
    records.of(Report)
    report = records.found.pop("Report")
    report["properties"]["seconds"] = {"type": "object", "properties": {"total": {"type": "number"}, "probe": _NUMBERS}}
    _name_cards(records)
    return _document(DOCTOR, report, records)


def fleet() -> Schema:
    """What `gpudoc bench --across --out fleet.json` writes: no host's name is in it."""
    records = Records()
    records.of(FleetRecord)
    record = records.found.pop("FleetRecord")
    del records.found["FleetNode"]["properties"]["host"]
    records.found["FleetReading"]["required"] = ["at", "samples"]
    _name_cards(records)
    return _document(FLEET, record, records)


def tune() -> Schema:
    """What `gpudoc tune --json` prints; `profile` is null if nothing was tuned, or with `--target`."""
    profile = Profile.model_json_schema(by_alias=True)
    found = {**profile.pop("$defs"), "Profile": profile}
    held = {"profile": {"anyOf": [{"$ref": "#/$defs/Profile"}, {"type": "null"}]}}
    return {
        **_document(TUNE, {"type": "object", "properties": held, "required": list(held)}, Records()),
        "$defs": found,
    }


def train() -> Schema:
    """What `gpudoc train --json` prints, and `summary.json` of a run."""
    records = Records()
    forms = [records.fields(kind) for kind in (RunSummary, CommandSummary, WrittenSummary)]
    found = dict(sorted(records.found.items()))
    return {"$schema": DIALECT, "title": TRAIN, "required": ["schema"], "anyOf": forms, "$defs": found}


def fix() -> Schema:
    """What `gpudoc fix --json` prints."""
    records = Records()
    return _document(FIX, records.fields(FixSummary), records)


def _name_cards(records: Records) -> None:
    card = records.found["Card"]
    card["properties"], card["required"] = {name: card["properties"][name] for name in _NAMED}, []


def causes() -> Schema:
    """What `gpudoc doctor --list --json` and `--explain ID --json` print."""
    records = Records()
    hints = get_type_hints(Cause)
    rows = {
        name: records.of(hints[name]) for name in ("id", "family", "title", "meaning", "why", "explains", "sources")
    }
    rows["fix"] = {"type": "array", "items": records.of(Remedy)}
    row = {"type": "object", "description": _first_line(Cause), "properties": rows, "required": list(rows)}
    listed = {"type": "object", "properties": {"causes": {"type": "array", "items": row}}, "required": ["causes"]}
    return _document("gpudoc.causes.v1", listed, records)


def error() -> Schema:
    """What every command prints with `--json` when it fails."""
    said = {"message": {"type": "string"}, "hint": {"type": "string"}}
    return _document("gpudoc.error.v1", {"type": "object", "properties": said, "required": list(said)}, Records())


def check() -> Schema:
    """What `gpudoc check --json` prints; a file without a mistake has an empty list."""
    text = {"type": "string"}
    row = {"file": text, "mistakes": {"type": "array", "items": text}}
    files = {"type": "array", "items": {"type": "object", "properties": row, "required": list(row)}}
    listed = {"type": "object", "properties": {"files": files}, "required": ["files"]}
    return _document("gpudoc.check.v1", listed, Records())


def _document(name: str, schema: Schema, records: Records) -> Schema:
    properties = {"schema": {"const": name}, **schema["properties"]}
    body = {**schema, "properties": properties, "required": ["schema", *schema["required"]]}
    return {"$schema": DIALECT, "title": name, **body, "$defs": dict(sorted(records.found.items()))}


def _of_model(name: str, model: type[Profile] | type[RecordDocument]) -> Schema:
    return {"$schema": DIALECT, **model.model_json_schema(by_alias=True), "title": name}


def schemas() -> dict[str, Schema]:
    """Every schema by the name of its document."""
    found = {
        DOCTOR: doctor(),
        FLEET: fleet(),
        TUNE: tune(),
        TRAIN: train(),
        FIX: fix(),
        "gpudoc.causes.v1": causes(),
        "gpudoc.check.v1": check(),
        "gpudoc.error.v1": error(),
        "gpudoc.profile.v1": _of_model("gpudoc.profile.v1", Profile),
        "gpudoc.bench.v1": _of_model("gpudoc.bench.v1", RecordDocument),
    }
    return dict(sorted(found.items()))


def main() -> int:
    """Write the files, or say which are out of date; returns the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--write", action="store_true", help="write those that changed")
    writes = options.parse_args().write
    stale = 0
    for name, schema in schemas().items():
        path, text = FOLDER / f"{name}.json", json.dumps(schema, indent=1) + "\n"
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale += 1
        if writes:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        print(f"{path.name}: {'written' if writes else 'out of date; python tools/schemas.py --write'}")
    return 0 if writes else min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
