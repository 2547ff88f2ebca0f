"""A judged record in Prometheus' text format, for node exporter's textfile collector or any scraper of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetRecord, Spot
from gpudoc.fleet.verdict import FleetVerdict

Labels = dict[str, str]


def to_prometheus(record: FleetRecord, verdict: FleetVerdict) -> str:
    """Gauges by node and GPU. Unmeasured values have no sample, so an alert on absence notices them."""
    blocks = [
        _gauge("gpudoc_fleet_value", "Median of the samples of the first measurement.", _values(record, verdict)),
        _gauge(
            "gpudoc_fleet_sigma",
            "Distance from the peers in robust standard deviations; negative is worse.",
            _sigmas(record, verdict),
        ),
        _gauge("gpudoc_fleet_node_answered", "1 when the node answered until the end.", _answered(record)),
        _gauge(
            "gpudoc_fleet_drain", "1 when the node was found bad twice and should be drained.", _drain(record, verdict)
        ),
        _gauge("gpudoc_fleet_finding", "1 for each finding at each place it names.", _findings(record, verdict)),
        _gauge("gpudoc_fleet_job_loss_share", "What a synchronous job loses to its slowest GPU.", _loss(verdict)),
    ]
    return "".join(blocks)


def _gauge(name: str, meaning: str, samples: Iterable[tuple[Labels, float]]) -> str:
    lines = [
        f"{name}{{{_labels(labels)}}} {value:.6g}\n" if labels else f"{name} {value:.6g}\n" for labels, value in samples
    ]
    return f"# HELP {name} {meaning}\n# TYPE {name} gauge\n{''.join(lines)}" if lines else ""


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _place(record: FleetRecord, spot: Spot) -> Labels:
    """Labels of a place: a node's position and id, and for a GPU also its position and the card's id."""
    node = record.nodes[spot.node]
    labels = {"node": str(spot.node), "node_id": "" if isinstance(node.id, Absent) else node.id}
    if spot.gpu >= 0:
        card = node.gpus[spot.gpu].id
        labels |= {"gpu": str(spot.gpu), "card": "" if isinstance(card, Absent) else card}
    return labels


def _values(record: FleetRecord, verdict: FleetVerdict) -> Iterator[tuple[Labels, float]]:
    for family in verdict.families:
        for scored in family.scored:
            measure = scored.measure
            # only labels that distinguish measures: each parameter's name is a label
            own = {name: str(value) for name, value in measure.parameters.items()}
            shared = {"measure": measure.name, "load": measure.load, "scope": measure.scope, "unit": measure.unit} | own
            for at, value in scored.values.items():
                if len(at) == 1:
                    yield _place(record, at[0]) | shared, value


def _sigmas(record: FleetRecord, verdict: FleetVerdict) -> Iterator[tuple[Labels, float]]:
    for family in verdict.families:
        shared = {"kind": family.kind, "load": family.load, "scope": family.scored[0].measure.scope}
        for at, value in family.z.items():
            if len(at) == 1:
                yield _place(record, at[0]) | shared, value


def _answered(record: FleetRecord) -> Iterator[tuple[Labels, float]]:
    for number, node in enumerate(record.nodes):
        yield _place(record, Spot(number)), float(node.missing is None)


def _drain(record: FleetRecord, verdict: FleetVerdict) -> Iterator[tuple[Labels, float]]:
    drained = set(verdict.drained)
    for number in range(len(record.nodes)):
        yield _place(record, Spot(number)), float(number in drained)


def _findings(record: FleetRecord, verdict: FleetVerdict) -> Iterator[tuple[Labels, float]]:
    seen = set()
    for one in verdict.named:
        for spot in one.at:
            key = (one.finding.id, spot)
            if key not in seen:
                seen.add(key)
                yield _place(record, spot) | {"id": one.finding.id, "severity": one.finding.severity}, 1.0


def _loss(verdict: FleetVerdict) -> Iterator[tuple[Labels, float]]:
    if verdict.loss is not None:
        yield {"state": "now"}, verdict.loss.now
        yield {"state": "without_drained"}, verdict.loss.without_drained
