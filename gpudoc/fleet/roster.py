"""The participants: nodes, the processes on each, and the GPUs of each process; rank 0 decides once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from gpudoc.fleet.meeting import Message
from gpudoc.fleet.place import is_host
from gpudoc.fleet.record import MissingPart, Spot


@dataclass(slots=True)
class Unit:
    """One GPU, or one CPU rank, and the process that has it; `gone` says why it no longer takes part."""

    spot: Spot
    rank: int
    device: str
    gone: str = ""


@dataclass(slots=True)
class Node:
    """One host: the ranks there, its units in order, why it is not whole, and who else computes on its GPUs."""

    host: str
    ranks: list[int] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    # ranks that took part, and then fell silent
    lost: list[int] = field(default_factory=list)
    sharers: list[str] = field(default_factory=list)
    missing: MissingPart | None = None


@dataclass(slots=True)
class Roster:
    """All nodes, in the order of their first ranks; silent nodes come last."""

    nodes: list[Node]

    def units(self) -> list[Unit]:
        """The units that still take part, node by node."""
        return [unit for node in self.nodes for unit in node.units if not unit.gone]

    def leaders(self) -> list[int]:
        """The first rank of each node that still takes part."""
        return [node.ranks[0] for node in self.nodes if node.ranks]

    def ranks(self) -> list[int]:
        """All ranks that still take part."""
        return [rank for node in self.nodes for rank in node.ranks]

    def node_of(self, rank: int) -> Node:
        """The node of a rank that takes part."""
        return next(node for node in self.nodes if rank in node.ranks)

    def lose(self, rank: int, missing: MissingPart) -> None:
        """Remove a rank and its units from the participants; the first reason of a node is kept."""
        node = self.node_of(rank)
        node.ranks.remove(rank)
        node.lost.append(rank)
        node.missing = node.missing or missing
        for unit in node.units:
            if unit.rank == rank:
                unit.gone = unit.gone or missing.because


def make_roster(hellos: Mapping[int, Message | str], world: int, own_version: str, hosts: Iterable[str]) -> Roster:
    """The roster from the ranks' greetings; ranks without a valid greeting or with another version are missing from
    it, and it names them. `hosts` are the hosts that the engine knows.
    """
    known = frozenset(_short(host) for host in hosts)
    hellos = {rank: _with_a_host(told, known) for rank, told in hellos.items()}
    nodes: dict[str, Node] = {}
    devices: dict[int, Mapping[str, str]] = {}
    kinds = {str(told.get("kind")) for told in hellos.values() if isinstance(told, Mapping)}
    best = ("cuda",) if "cuda" in kinds else ("cpu",)
    for rank in range(world):
        told = hellos.get(rank)
        if not isinstance(told, Mapping):
            continue
        node = nodes.setdefault(str(told["host"]), Node(host=str(told["host"])))
        because = _objection(told, own_version)
        if because is not None:
            node.missing = node.missing or because
            continue
        node.ranks.append(rank)
        node.sharers += [str(told["sharers"])] if told.get("sharers") else []
        problem = str(told.get("problem") or ("no GPU is visible here" if told.get("kind") not in best else ""))
        # it has nothing to measure, but doctor may know why
        devices[rank] = {} if problem else cast("Mapping[str, str]", told["devices"])
        if problem:
            node.missing = node.missing or MissingPart("died", problem, "looking for its GPUs")
    for number, node in enumerate(nodes.values()):
        node.units = _share_out(number, node.ranks, devices)
    silent = [rank for rank in range(world) if not isinstance(hellos.get(rank), Mapping)]
    return Roster([*nodes.values(), *_unheard(silent, hellos, nodes, hosts)])


def _with_a_host(told: Message | str, known: frozenset[str]) -> Message | str:
    """The greeting, or why it is invalid: scripts drain nodes by its host, so that must be a name the engine knows."""
    if isinstance(told, str):
        return told
    host = told.get("host")
    if not isinstance(host, str) or not is_host(host):
        return "a greeting without a host name"
    if known and _short(host) not in known:
        return f"a greeting from {host}, which is not one of the job's hosts"
    return told


def _short(host: str) -> str:
    return host.split(".")[0]


def _objection(told: Message, own_version: str) -> MissingPart | None:
    if told.get("version") != own_version:
        return MissingPart("another version", f"gpudoc {told.get('version')} there, {own_version} on rank 0", "joining")
    if not isinstance(told.get("devices"), Mapping):
        return MissingPart("unreadable", "its greeting does not say what devices it has", "joining")
    return None


def _share_out(node: int, ranks: list[int], devices: Mapping[int, Mapping[str, str]]) -> list[Unit]:
    """Assign every GPU of a node once: to the process with the fewest GPUs among those that see it."""
    seen: dict[str, list[tuple[int, str]]] = {}
    for rank in ranks:
        for device, address in devices[rank].items():
            # a device without an address belongs to one rank only
            seen.setdefault(address or f"{rank} {device}", []).append((rank, device))
    load = dict.fromkeys(ranks, 0)
    units = []
    for number, whose in enumerate(seen.values()):
        rank, device = min(whose, key=lambda one: load[one[0]])
        load[rank] += 1
        units.append(Unit(Spot(node, number), rank, device))
    return units


def _unheard(
    silent: list[int], hellos: Mapping[int, Message | str], nodes: Mapping[str, Node], hosts: Iterable[str]
) -> list[Node]:
    """Silent nodes that only the engine knows, and silent ranks on unknown nodes."""
    short = {_short(host) for host in nodes}
    unseen = [host for host in hosts if _short(host) not in short]
    garbled = [(rank, str(hellos[rank])) for rank in silent if rank in hellos]
    found = [Node(host=f"rank {rank}", missing=MissingPart("unreadable", said, "joining")) for rank, said in garbled]
    mute = [rank for rank in silent if rank not in hellos]
    if not mute:
        return found
    because = "nothing was heard from it: gpudoc or torch is missing, or the node is down"
    if unseen:
        return found + [Node(host=host, missing=MissingPart("no gpudoc", because, "joining")) for host in unseen]
    return found + [Node(host=f"rank {rank}", missing=MissingPart("no gpudoc", because, "joining")) for rank in mute]
