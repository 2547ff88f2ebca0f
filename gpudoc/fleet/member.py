"""One process of the engine: describes itself, runs rank 0's orders in a child for each GPU, and answers in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gpudoc
from gpudoc.bench.documents import reading_from_json
from gpudoc.bench.environment import make_plan
from gpudoc.bench.model import BENCH_VERSION, RawReading
from gpudoc.bench.target import BenchTarget, find_target
from gpudoc.bench.telemetry import Telemetry, annotate, open_telemetry
from gpudoc.doctor.sharing import require_alone
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent
from gpudoc.fleet.hand import Hand, OrderAnswer
from gpudoc.fleet.meeting import LeaderLostError, Meeting, Message
from gpudoc.fleet.node import describe_node
from gpudoc.fleet.record import FLEET_VERSION

# the number of the hello's format, which every version must understand; never changed
PROTOCOL = 1
_LOOK_S = 0.2


def hello(target: BenchTarget, host: str) -> Message:
    """The greeting of a process: its version, host, visible GPUs and their other users, or the CPU."""
    devices = devices_of(target)
    ordinals = [int(device.partition(":")[2]) for device in devices if device != "cpu"]
    return {
        "protocol": PROTOCOL,
        "version": f"{gpudoc.__version__}.{BENCH_VERSION}.{FLEET_VERSION}",
        "host": host,
        "kind": target.choice.device,
        "problem": target.choice.why if target.choice.problem is not None else "",
        "devices": {device: address_of(device, target) for device in devices},
        # rank 0 decides whether that ends the run
        "sharers": require_alone(target.machine, ordinals, shared=True),
    }


def devices_of(target: BenchTarget) -> tuple[str, ...]:
    """Every GPU that this process sees, as torch counts them; the CPU if that is measured."""
    if target.choice.device == "cpu":
        return ("cpu",)
    count = target.machine.torch.device_count
    if isinstance(count, Absent):
        # on a busy node the answer came too late; torch is imported anyway for the store, and counts without a context
        import torch

        count = torch.cuda.device_count()
    return tuple(f"cuda:{index}" for index in range(count))


def address_of(device: str, target: BenchTarget) -> str:
    """The PCI address of a device, '' for the CPU or if unknown."""
    kind, _, index = device.partition(":")
    gpu = gpu_at(int(index), target.machine) if kind == "cuda" else None
    return "" if gpu is None or isinstance(gpu.pci_address, Absent) else gpu.pci_address.lower()


class Member:
    """The work of one process between its hello and the end."""

    def __init__(self, meeting: Meeting, target: BenchTarget, data: Path | None) -> None:
        self._meeting = meeting
        self._target = target
        self._data = data
        self._beside = 1
        self._devices: tuple[str, ...] = ()
        self._hands: dict[str, Hand] = {}

    def follow(self) -> None:
        """Run orders until rank 0 announces the end; never leaves a child behind."""
        rank = self._meeting.place.rank
        number = 0
        try:
            while (order := self._meeting.await_order(number, rank)) is not None:
                self._meeting.say(f"reply/{number}/{rank}", self._do(order))
                number += 1
        finally:
            self.end()

    def end(self) -> None:
        """End every child, even a busy one."""
        for hand in self._hands.values():
            hand.end()

    def _do(self, order: Mapping[str, Any]) -> Message:
        try:
            match order.get("do"):
                case "roster":
                    self._beside, self._devices = int(order["beside"]), tuple(order["devices"])
                    return {}
                case "restart":
                    self.end()
                    return {}
                case "node":
                    if order.get("anew"):
                        self._target = find_target(self._target.choice.device)
                    return describe_node(self._target, self._devices, leads=bool(order["leads"]))
                case "children":
                    return self._ask_children(order)
                case other:
                    return {"failed": f"this version does not know the order: {other}"}
        except LeaderLostError:
            raise
        except Exception as error:  # this process answers for a whole node, even if a part of it is broken
            return {"failed": f"{type(error).__name__}: {str(error)[:300]}"}

    def _ask_children(self, order: Mapping[str, Any]) -> Message:
        orders: Mapping[str, Mapping[str, Any]] = order["orders"]
        answers: dict[str, Message] = {}

        def ask(device: str) -> None:
            try:
                answers[device] = self._ask(device, orders[device], float(order["seconds"]))
            except Exception as error:  # no caller would report the error of a thread
                answers[device] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}

        for device in orders:
            # here, not in the threads below: a child ends with the thread that started it
            self._hand(device).start()
        threads = [threading.Thread(target=ask, args=(device,), daemon=True) for device in orders]
        for thread in threads:
            thread.start()
        # stop waiting if rank 0 no longer accepts figures
        while any(thread.is_alive() for thread in threads) and not self._meeting.is_over():
            threads[-1].join(_LOOK_S)
            threads.sort(key=threading.Thread.is_alive)
        return {"answers": answers}

    def _hand(self, device: str) -> Hand:
        if device not in self._hands:
            plan = make_plan(device, self._target.machine, quick=True, only=(), data=None)
            if device == "cpu" and self._devices == ("cpu",):
                # the ranks of a node share its cores, as in training
                plan = replace(plan, threads=max(1, plan.threads // self._beside))
            # one process per device takes all samples
            self._hands[device] = Hand(replace(plan, rounds=1, memory_bytes=plan.memory_bytes // self._beside))
        return self._hands[device]

    def _ask(self, device: str, order: Mapping[str, Any], seconds: float) -> Message:
        # the user who started this process chooses the folder, not an order
        folder = self._data if "folder" in order.get("cases", ()) else None
        order = {**order, "data": "" if folder is None else str(folder.resolve())}
        telemetry = Absent("no GPU") if device == "cpu" else open_telemetry(address_of(device, self._target))
        began = time.monotonic()
        answer = self._hands[device].ask(order, seconds)
        events = _with_counters(answer, telemetry, device, began)
        return {"events": events, "failed": answer.failed, "hung": answer.hung}


def _with_counters(
    answer: OrderAnswer, telemetry: Telemetry | Absent, device: str, began: float
) -> Sequence[Mapping[str, object]]:
    """The events that rank 0 needs; each reading's context holds the GPU's counters from that time."""
    looks = []
    if not isinstance(telemetry, Absent):
        telemetry.stop()
        looks = telemetry.looks
    events: list[Mapping[str, object]] = []
    for event in answer.events:
        match event["event"]:
            case "reading":
                values = event["values"]
                assert isinstance(values, dict)
                reading = annotate([reading_from_json(values)], looks)[0]
                events.append({"event": "sampled", **_plain(reading)})
            case "sampled" | "swept":
                assert isinstance(event, dict)
                whole = RawReading(
                    name="", device=device, parameters={}, unit="", samples=(), began_s=began, ended_s=time.monotonic()
                )
                events.append({**event, "context": dict(annotate([whole], looks)[0].context)})
            case "gpu" | "ready":
                pass
            case _:
                events.append(event)
    return events


def _plain(reading: RawReading) -> dict[str, object]:
    known = asdict(reading)
    return {name: known[name] for name in ("name", "parameters", "unit", "better", "samples", "context", "corrupted")}
