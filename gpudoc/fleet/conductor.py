"""Rank 0's part: gives all processes their orders in step, waits for each until its deadline, keeps the answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from gpudoc.fleet.hand import START_S
from gpudoc.fleet.ledger import Circumstances, Ledger, merge
from gpudoc.fleet.meeting import SILENCE_S, Meeting, Message
from gpudoc.fleet.record import MissingPart, Spot
from gpudoc.fleet.roster import Node, Roster, Unit
from gpudoc.progress import Progress

Order = Mapping[str, object]
Answer = Mapping[str, Any]

# the time that a process needs between a child's answer and its own
_GRACE_S = 30.0
# no answer takes longer than this beyond its own seconds, even on a node that swaps or in a group that meets late
_SLACK_S = 90.0


@dataclass(frozen=True, slots=True)
class Group:
    """Units that exchange data among themselves, and the places of their reading."""

    members: tuple[Unit, ...]
    at: tuple[Spot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The work of a group: operations ('all_reduce', ..., 'clock'), their sizes, and the seconds for them."""

    operations: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    seconds: float = 2.0


class Conductor:
    """Sends numbered orders to the ranks that have work, and collects their answers."""

    def __init__(self, meeting: Meeting, roster: Roster, ledger: Ledger, progress: Progress) -> None:
        self.roster = roster
        self.ledger = ledger
        self._meeting = meeting
        self._progress = progress
        self._number: dict[int, int] = {}
        self._groups = itertools.count()
        self.port = meeting.place.port
        self.total_s, self.spent_s = 1.0, 0.0
        # a second measurement covers only some nodes
        self.attempt = 1
        self._chosen: set[int] | None = None

    def begin_again(self, nodes: set[int]) -> None:
        """Begin the second measurement, on these nodes, in new processes."""
        self.attempt, self._chosen = 2, nodes
        restarts = {rank: {"do": "restart"} for number in nodes for rank in self.roster.nodes[number].ranks}
        self.order(restarts, 5.0, "starting again")

    def takes(self, node: int) -> bool:
        """Whether a node is measured now."""
        return self._chosen is None or node in self._chosen

    def units(self) -> list[Unit]:
        """The units that are measured now."""
        return [unit for unit in self.roster.units() if self.takes(unit.spot.node)]

    def order(self, orders: Mapping[int, Message], seconds: float, during: str) -> dict[int, Message]:
        """The ranks' answers to their orders. A rank that does not answer is lost, and reported with its last order."""
        keys = {}
        for rank, message in orders.items():
            number = self._number.get(rank, 0)
            self._number[rank] = number + 1
            self._meeting.say(f"order/{number}/{rank}", message)
            keys[rank] = f"reply/{number}"
        began = time.monotonic()

        def tick(awaited: int) -> None:
            spent = min(seconds, time.monotonic() - began)
            self._progress.advance(
                self.spent_s + spent, self.total_s, f"{during}, {awaited} of {len(orders)} to answer"
            )

        told = self._meeting.gather(keys, seconds + START_S + _GRACE_S, tick)
        self.spent_s += seconds
        answers: dict[int, Message] = {}
        for rank in orders:
            reply = told.get(rank)
            if reply is None:
                lives = self._meeting.lives(rank)
                because = (
                    f"rank {rank} is alive but did not answer within {seconds + START_S + _GRACE_S:.0f} s"
                    if lives
                    else f"rank {rank} has not been heard for {SILENCE_S:.0f} s"
                )
                self._lose(rank, MissingPart("hung" if lives else "died", because, during))
            elif isinstance(reply, str):
                self._lose(rank, MissingPart("unreadable", f"rank {rank} sent {reply}", during))
            else:
                answers[rank] = reply
        return answers

    def _lose(self, rank: int, missing: MissingPart) -> None:
        node = self.roster.node_of(rank)
        self._progress.say(f"{node.host}: {missing.because}, while {missing.during}; the others continue without it")
        self.roster.lose(rank, missing)

    def ask(self, orders: Sequence[tuple[Unit, Order]], seconds: float, during: str) -> dict[Spot, Answer]:
        """Each unit's answer to its order; a unit whose process hung no longer takes part."""
        by_rank: dict[int, dict[str, Order]] = {}
        for unit, order in orders:
            by_rank.setdefault(unit.rank, {})[unit.device] = order
        limit_s = 3 * seconds + _SLACK_S
        messages = {
            rank: {"do": "children", "orders": devices, "seconds": limit_s} for rank, devices in by_rank.items()
        }
        replies = self.order(messages, limit_s, during)
        found: dict[Spot, Answer] = {}
        for unit, _ in orders:
            if unit.rank not in replies:
                continue
            reply = replies[unit.rank]
            answers = cast("Mapping[str, Answer]", reply.get("answers", {}))
            answer = answers.get(unit.device, {"failed": str(reply.get("failed") or "it gave no answer")})
            found[unit.spot] = answer
            if answer.get("hung"):
                self._drop(unit, f"{unit.device}: {answer['failed']}", during)
        return found

    def _drop(self, unit: Unit, because: str, during: str) -> None:
        node = self.roster.nodes[unit.spot.node]
        unit.gone = because
        node.missing = node.missing or MissingPart("hung", because, during)
        self._progress.say(f"{node.host}: {because}, while {during}; the others continue without it")

    def measure(
        self,
        orders: Sequence[tuple[Unit, Order]],
        names: Sequence[str],
        setting: Circumstances,
        seconds: float,
        during: str,
    ) -> None:
        """Enter the units' figures in the ledger; note a failed unit under each of `names` that has no figure."""
        found = self.ask(orders, seconds, during)
        setting = replace(setting, attempt=self.attempt)
        for unit, _ in orders:
            answer = found.get(unit.spot, {"failed": f"its process was lost while {during}"})
            at = (Spot(unit.spot.node),) if setting.scope == "node" else (unit.spot,)
            events = answer.get("events", ())
            for event in events:
                self.ledger.take(at, event, setting)
            had = {str(event.get("name")) for event in events}
            for name in names if answer.get("failed") else ():
                if name not in had:
                    self.ledger.fail(at, name, str(answer["failed"]), setting)

    def exchange(self, groups: Sequence[Group], what: Exchange, setting: Circumstances, during: str) -> None:
        """Run all groups at once. If a group failed because a member was lost, the rest of it tries once more."""
        setting = replace(setting, attempt=self.attempt)
        again: list[Group] = []
        for group, answers in self._meet(_those_left(groups), what, during):
            failed = merge(answers) or ("" if len(answers) == len(group.members) else "a member was lost")
            if failed and (rest := _those_left([group])) and len(rest[0].members) < len(group.members):
                again += rest
            else:
                self._keep_group(group, answers, failed, what, setting)
        for group, answers in self._meet(again, what, during) if again else ():
            failed = merge(answers) or ("" if len(answers) == len(group.members) else "a member was lost")
            self._keep_group(group, answers, failed, what, setting)

    def _meet(self, groups: Sequence[Group], what: Exchange, during: str) -> list[tuple[Group, list[Answer]]]:
        orders = []
        hosts = {self.roster.nodes[unit.spot.node].host for group in groups for unit in group.members}
        for group in groups:
            common = {
                "do": "group",
                "id": f"group/{next(self._groups)}",
                "world": len(group.members),
                "address": self._meeting.place.address,
                "port": self.port,
                "one_node": len(hosts) == 1,
                "operations": list(what.operations),
                "sizes": list(what.sizes),
                "seconds": what.seconds,
                # a rank that waits for a dead one gives up before its parent ends it: so the hung rank becomes known
                "limit_s": what.seconds + _SLACK_S / 2,
            }
            orders += [(unit, {**common, "rank": rank}) for rank, unit in enumerate(group.members)]
        found = self.ask(orders, what.seconds, during)
        return [(group, [found[u.spot] for u in group.members if u.spot in found]) for group in groups]

    def _keep_group(
        self, group: Group, answers: Sequence[Answer], failed: str, what: Exchange, setting: Circumstances
    ) -> None:
        # every rank was in every exchange, so the first rank's figures stand for the group
        for event in () if failed else answers[0].get("events", ()):
            if event["event"] == "clock":
                self.ledger.look_at_clocks([unit.spot.node for unit in group.members], event["rows"])
            else:
                self.ledger.take(group.at, event, setting)
        for operation in what.operations if failed else ():
            if operation != "clock":
                self.ledger.fail(group.at, operation, failed, setting)

    def keep_description(self, units: Sequence[Unit], node: int, reply: Message, *, leads: bool) -> None:
        """Enter a process's description of itself in the ledger; a node is marked if the description is unreadable."""
        problem = str(reply.get("failed", "")) or self.ledger.describe(
            [unit.spot for unit in units], node, reply, leads=leads
        )
        if problem:
            found = self.roster.nodes[node]
            found.missing = found.missing or MissingPart("unreadable", problem, "describing itself")

    def answers_again(self, node: Node) -> bool:
        """Whether all lost ranks of a node are heard again; a node with another version never is."""
        if node.missing is None or node.missing.reason not in ("died", "hung", "no gpudoc"):
            return False
        return bool(node.lost) and all(self._meeting.lives(rank) for rank in node.lost)


def _those_left(groups: Sequence[Group]) -> list[Group]:
    """The groups without members that are gone, and without groups of one."""
    found = []
    for group in groups:
        left = tuple(unit for unit in group.members if not unit.gone)
        here = {unit.spot for unit in left} | {Spot(unit.spot.node) for unit in left}
        if len(left) > 1:
            found.append(Group(left, tuple(spot for spot in group.at if spot in here)))
    return found
