"""What a process says of itself, and how it does orders with children that are played."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoc.bench.target import BenchTarget
from gpudoc.doctor.device import Choice
from gpudoc.facts.model import Gpu, GpuProcess, Machine, TorchBuild
from gpudoc.fleet import hand
from gpudoc.fleet.meeting import Meeting
from gpudoc.fleet.member import Member, hello
from gpudoc.fleet.place import EnginePlace
from tests.fleet.test_hand import PLAYED
from tests.fleet.test_meeting import Memory

GPUS = (Gpu(index=0, name="H200", pci_address="0000:0F:00.0"), Gpu(index=1, name="H200", pci_address="0000:10:00.0"))
ON_GPU = BenchTarget(Machine(gpus=GPUS, torch=TorchBuild(device_count=2)), Choice(device="cuda", why="the GPU"))
ON_CPU = BenchTarget(Machine(), Choice(device="cpu", why="the CPU, as requested"))


def test_a_greeting_names_every_gpu_by_its_address():
    told = hello(ON_GPU, "n1")
    assert told["devices"] == {"cuda:0": "0000:0f:00.0", "cuda:1": "0000:10:00.0"}
    assert (told["host"], told["kind"], told["problem"]) == ("n1", "cuda", "")
    assert hello(ON_CPU, "n1")["devices"] == {"cpu": ""}


def test_a_greeting_says_who_else_computes_on_its_gpus():
    # above what Linux gives out, so nobody's
    foreign = GpuProcess(pid=2**22 + 7, memory_bytes=8 * 2**30, name="python", alive=True, sm_percent=90, user="ann")
    busy = Machine(gpus=(GPUS[0], replace(GPUS[1], processes=(foreign,))), torch=TorchBuild(device_count=2))
    assert "cuda:1: ann's python" in str(hello(replace(ON_GPU, machine=busy), "n1")["sharers"])
    assert hello(ON_GPU, "n1")["sharers"] == ""
    assert hello(ON_CPU, "n1")["sharers"] == ""


def test_gpus_are_counted_though_the_machine_did_not_say_in_time(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    late = BenchTarget(Machine(gpus=GPUS), ON_GPU.choice)
    assert list(hello(late, "n1")["devices"]) == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(hand, "PROGRAM", (sys.executable, "-c", PLAYED))
    return Memory()


def follow(store, *orders):
    """The replies of a process to these orders; it has heard the end when they are done."""
    leader = Meeting(store, EnginePlace(engine="srun", world=2))
    store.set("beat/0", "1")
    for number, order in enumerate(orders):
        leader.say(f"order/{number}/1", order)
    leader.say(f"order/{len(orders)}/1", {"do": "restart"})
    member = Member(Meeting(store, EnginePlace(engine="srun", rank=1, world=2)), ON_CPU, None)
    # the end is told once the last order is answered
    answered = store.set

    def answer(key, value):
        answered(key, value)
        if key == f"reply/{len(orders)}/1":
            answered("end", "{}")

    store.set = answer
    member.follow()
    return [leader.read(f"reply/{number}/1") for number in range(len(orders))]


def children(do: str, seconds: float = 60.0) -> dict[str, object]:
    return {"do": "children", "orders": {"cpu": {"do": do}}, "seconds": seconds}


def test_orders_are_done_in_turn_and_each_is_answered(store):
    roster = {"do": "roster", "devices": ["cpu"], "beside": 1}
    replies = follow(store, roster, children("work"), children("die"), children("work"))
    assert replies[0] == {}
    (event,) = replies[1]["answers"]["cpu"]["events"]
    assert event["event"] == "sampled"
    assert "CUDA driver error" in replies[2]["answers"]["cpu"]["failed"]
    # the next order finds a new process
    (again,) = replies[3]["answers"]["cpu"]["events"]
    assert again["pid"] != event["pid"]


def test_an_order_that_is_not_known_is_answered_too(store):
    assert "does not know" in follow(store, {"do": "dance"})[0]["failed"]


def test_a_fault_in_an_order_is_an_answer(store):
    assert follow(store, {"do": "children", "orders": {}})[0] == {"answers": {}}
    assert "KeyError" in follow(Memory(), {"do": "roster"})[0]["failed"]


class Asked:
    """A child that keeps what it is asked."""

    def __init__(self):
        self.orders = []

    def start(self):
        pass

    def end(self):
        pass

    def ask(self, order, seconds):
        self.orders.append(order)
        return hand.OrderAnswer()


@pytest.mark.parametrize(
    ("own", "cases", "read"), [(None, "folder", ""), ("/own", "folder", "/own"), ("/own", "x", "")]
)
def test_which_folder_is_read_is_not_for_an_order_to_say(own, cases, read):
    member = Member(Meeting(Memory(), EnginePlace(engine="srun")), ON_CPU, None if own is None else Path(own))
    member._hands["cpu"] = child = Asked()
    member._ask("cpu", {"do": "cases", "cases": [cases], "data": "/etc"}, 1.0)
    assert [order["data"] for order in child.orders] == [read]
