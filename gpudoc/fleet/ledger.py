"""The measurements so far, and the record that they form."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from statistics import median
from typing import Any, cast

import gpudoc
from gpudoc.errors import GpudocError
from gpudoc.facts.model import NOT_READ, Absent, Fact
from gpudoc.fleet import documents
from gpudoc.fleet.record import (
    FLEET_VERSION,
    SCHEMA,
    Better,
    Digest,
    FleetGpu,
    FleetNode,
    FleetReading,
    FleetRecord,
    Load,
    Measure,
    Parameter,
    Scope,
    Spot,
)
from gpudoc.fleet.roster import Node, Roster

Event = Mapping[str, Any]

_RENAMED = {
    "temperature_c_max": "temperature_c",
    "link_generation_max": "link_generation",
    "link_width_max": "link_width",
}
_KEPT = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "cpu_clock_ghz", "stolen_share", "other_cpus_max", "step_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The circumstances under which a figure was measured."""

    scope: Scope = "gpu"
    load: Load = "alone"
    attempt: int = 1
    # distinguishes groups of one scope: halves from all
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """All figures of a run, by measure."""

    engine: str = "none"
    mode: str = "full"
    ranks: int = 1
    began_s: float = field(default_factory=time.monotonic)
    measures: dict[str, Measure] = field(default_factory=dict)
    digests: list[Digest] = field(default_factory=list)
    clocks: dict[int, tuple[float, float]] = field(default_factory=dict)
    described: dict[int, FleetNode] = field(default_factory=dict)
    gpus: dict[Spot, FleetGpu] = field(default_factory=dict)
    # the cuBLAS version that each node uses
    libraries: dict[int, str] = field(default_factory=dict)
    # the findings of a second run of doctor on a node
    found_again: dict[int, tuple[str, ...]] = field(default_factory=dict)
    interrupted: bool = False

    def take(self, at: Sequence[Spot], event: Event, setting: Circumstances) -> None:
        """Keep one event of a child: a reading, or a digest."""
        match event["event"]:
            case "sampled" | "swept":
                wrong = str(event.get("corrupted") or event.get("because") or "")
                reading = FleetReading(
                    at=tuple(at),
                    samples=() if wrong else tuple(float(value) for value in event["samples"]),
                    context=readable_context(event.get("context", {})),
                    failed=f"wrong result: {wrong}" if event.get("corrupted") else wrong,
                )
                self._add(event, reading, setting)
            case "library":
                # from the library itself; the version of a package is only a substitute
                self.libraries[at[0].node] = str(event["cublas"])
            case "digest":
                hot = setting.load == "together"
                seen = {str(digest): int(count) for digest, count in event["seen"].items()}
                self.digests.append(
                    Digest(product=str(event["product"]), at=at[0], seen=seen, hot=hot, attempt=setting.attempt)
                )

    def fail(self, at: Sequence[Spot], name: str, because: str, setting: Circumstances) -> None:
        """Note that a figure could not be measured at a place."""
        unit = "samples/s" if name == "train_step" else "GB/s"
        self._add({"name": name, "unit": unit}, FleetReading(at=tuple(at), samples=(), failed=because), setting)

    def _add(self, event: Event, reading: FleetReading, setting: Circumstances) -> None:
        measure = Measure(
            name=str(event["name"]),
            scope=setting.scope,
            unit=str(event["unit"]),
            parameters={**event.get("parameters", {}), **setting.parameters},
            better=cast(Better, event.get("better", "higher")),
            load=setting.load,
            attempt=setting.attempt,
            readings=(),
        )
        key = f"{measure.key} {measure.attempt}"
        known = self.measures.get(key, measure)
        self.measures[key] = replace(known, readings=(*known.readings, reading))

    def describe(self, rank_units: Sequence[Spot], node: int, reply: Mapping[str, object], *, leads: bool) -> str:
        """Keep a process's description of its node and GPUs; returns the problem if it cannot be read, else ''."""
        try:
            told = documents.load({"schema": SCHEMA, **reply}, "what it says about its node").nodes[0]
        except (GpudocError, IndexError) as problem:
            return str(problem)
        self.gpus |= dict(zip(rank_units, told.gpus, strict=False))
        if leads and node in self.described:
            self.found_again[node] = tuple(finding.id for finding in told.findings)
        elif leads:
            self.described[node] = told
        return ""

    def look_at_clocks(self, nodes: Sequence[int], rows: Sequence[Sequence[float]]) -> None:
        """Store each node's clock minus the first one's: the median of all looks, and half of their range as error."""
        for place, node in enumerate(nodes):
            offsets = sorted(row[place] - row[0] for row in rows)
            self.clocks[node] = (median(offsets), (offsets[-1] - offsets[0]) / 2)

    def record(self, roster: Roster) -> FleetRecord:
        """The record of everything so far."""
        return FleetRecord(
            nodes=tuple(self._node(number, node) for number, node in enumerate(roster.nodes)),
            measures=tuple(self.measures.values()),
            digests=tuple(self.digests),
            made={
                "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "gpudoc": gpudoc.__version__,
                "fleet_version": FLEET_VERSION,
                "engine": self.engine,
                "ranks": self.ranks,
                "mode": self.mode,
            },
            interrupted=self.interrupted,
            seconds=time.monotonic() - self.began_s,
        )

    def _node(self, number: int, node: Node) -> FleetNode:
        unknown = Absent("it did not describe itself")
        known = self.described.get(number, FleetNode(id=unknown, doctor=unknown))
        offset, error = self.clocks.get(number, (NOT_READ, NOT_READ))
        # a rank that was never heard has no host name
        host: Fact[str] = Absent(node.host) if node.host.startswith("rank ") else node.host
        library = self.libraries.get(number)
        return replace(
            known,
            host=host,
            versions={**known.versions, **({"cublas": library} if library else {})},
            gpus=tuple(
                self.gpus.get(unit.spot, FleetGpu(index=place, model=unknown)) for place, unit in enumerate(node.units)
            ),
            clock_offset_s=offset,
            clock_error_s=error,
            findings_again=self.found_again.get(number, NOT_READ),
            missing=node.missing,
        )


def readable_context(context: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a reading's context that a fleet keeps, under the record's names."""
    found = {name: float(context[name]) for name in _KEPT if name in context}
    found |= {new: float(context[old]) for old, new in _RENAMED.items() if old in context}
    throttled = [float(value) for name, value in context.items() if name.startswith("throttled_")]
    if throttled:
        found["throttled_share"] = max(throttled)
    return found


def merge(answers: Iterable[Mapping[str, Any]]) -> str:
    """Why a group has no figures: the first error that is not only the loss of a peer; '' if there is no error."""
    failed = [str(one.get("failed", "")) for one in answers]
    told = [text for text in failed if text]
    own = [text for text in told if not _is_consequence(text)]
    return (own or told or [""])[0]


def _is_consequence(text: str) -> bool:
    lost = ("Connection", "connect", "timed out", "Timed out", "timeout", "Timeout", "peer", "Socket", "remote")
    return any(word in text for word in lost)
