"""The second, independent measurement: one is not enough to drain a node, so odd places are measured again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpudoc.bench.collective import OPERATIONS
from gpudoc.fleet import stages
from gpudoc.fleet.conductor import Conductor
from gpudoc.fleet.record import Measure
from gpudoc.fleet.roster import Node
from gpudoc.fleet.stages import Scheme
from gpudoc.fleet.verdict import Suspect, suspects
from gpudoc.progress import Progress

# an order for a child that hung, so small that only another hang prevents the answer
_PROOF = {"do": "steps", "seconds": 0.5}


def measure_again(conductor: Conductor, scheme: Scheme, progress: Progress) -> None:
    """Measure odd places once more in new processes, together with other places; and ask silent nodes again."""
    found = suspects(conductor.ledger.record(conductor.roster))
    if not found:
        return
    nodes = {spot.node for one in found for spot in (*one.at, *one.witnesses)}
    progress.say(f"measuring again what looks odd, in new processes; nodes: {len(nodes)} ...")
    conductor.begin_again(nodes)
    for number in sorted({spot.node for one in found if one.what == "node" for spot in one.at}):
        _ask_again(conductor, conductor.roster.nodes[number])
    _examine_again(conductor, [spot.node for one in found if one.what == "doctor" for spot in one.at])
    for stage in _stages_of(found):
        stage(conductor, scheme)


def _stages_of(found: Iterable[Suspect]) -> list[stages.Run]:
    """The stages to run again, each once and in the original order."""
    wanted = {_stage_of(one.measure) for one in found if one.measure is not None}
    wanted |= {stages.measure_digests for one in found if one.what == "digest"}
    order = (
        stages.measure_hosts,
        stages.measure_alone,
        stages.measure_together,
        stages.measure_steps,
        stages.measure_digests,
        stages.measure_collectives,
        stages.measure_pairs,
    )
    return [stage for stage in order if stage in wanted]


def _stage_of(measure: Measure) -> stages.Run:
    if measure.scope == "pair" or measure.parameters.get("part") == "half":
        return stages.measure_pairs
    if measure.name in OPERATIONS:
        return stages.measure_collectives
    if measure.scope == "node":
        return stages.measure_hosts
    if measure.name == "train_step":
        return stages.measure_steps
    return stages.measure_alone if measure.load == "alone" else stages.measure_together


def _examine_again(conductor: Conductor, nodes: Iterable[int]) -> None:
    roster = conductor.roster
    leaders = {roster.nodes[number].ranks[0]: number for number in nodes if roster.nodes[number].ranks}
    orders = {rank: {"do": "node", "leads": True, "anew": True} for rank in leaders}
    for rank, reply in conductor.order(orders, 30.0, "examining nodes again").items() if orders else ():
        conductor.keep_description([], leaders[rank], reply, leads=True)


def _ask_again(conductor: Conductor, node: Node) -> None:
    """Count a second attempt for a node that is still silent or hangs again; a node that answers now is not drained."""
    assert node.missing is not None
    hung = [unit for unit in node.units if unit.gone and unit.rank in node.ranks]
    for unit in hung:
        unit.gone = ""
    answers = conductor.ask([(unit, _PROOF) for unit in hung], 1.0, "asking the hung processes again") if hung else {}
    well = [unit for unit in hung if not answers.get(unit.spot, {"failed": "lost"}).get("failed")]
    if hung and len(well) == len(hung):
        return
    if not hung and (conductor.answers_again(node) or (node.ranks and not node.lost)):
        return
    node.missing = replace(node.missing, attempts=2)
