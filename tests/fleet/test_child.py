"""The process that measures, in this process: agreed sizes, looks at clocks, and real groups of one machine."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from gpudoc.bench.sampling import SamplingPlan
from gpudoc.fleet.child import DUTIES, SIZES, run_group
from gpudoc.fleet.hand import Hand, OrderAnswer
from gpudoc.fleet.meeting import open_store
from gpudoc.fleet.place import EnginePlace
from tests.fleet.allocation import free_port


def test_sizes_are_those_of_nccl_tests_from_8_bytes_to_8_gib():
    assert (SIZES[0], SIZES[-1]) == (8, 8 * 2**30)
    assert all(size % 4 == 0 for size in SIZES)


def test_every_duty_has_a_name_that_orders_use():
    assert set(DUTIES) == {"cases", "digests", "steps", "group"}


@pytest.fixture
def two():
    hands = [Hand(SamplingPlan(device="cpu", quick=True)) for _ in range(2)]
    for hand in hands:
        hand.start()
    yield hands
    for hand in hands:
        hand.end()


def test_two_children_meet_in_a_store_sweep_and_compare_clocks(two):
    port = free_port()
    _store, _ = open_store(EnginePlace(engine="srun", world=2, port=port))
    common = {
        "do": "group", "id": "group/0", "world": 2, "address": "127.0.0.1", "port": port, "one_node": True,
        "operations": ["all_reduce", "all_to_all", "clock"], "sizes": [8, 4096], "seconds": 600.0, "limit_s": 100.0,
    }  # fmt: skip
    # time enough however slow the first exchange is, from which the larger one's time is estimated;
    # both begin before either is listened to
    for rank, hand in enumerate(two):
        assert hand.ask({"do": "digests", "size": 8, "seconds": 0.0}, 100).failed == ""
        hand._child.say(json.dumps({**common, "rank": rank}).encode())
    answers = []
    for hand in two:
        answer = OrderAnswer()
        hand._listen(hand._child, answer, 120, "done")
        answers.append(answer)
    assert [answer.failed for answer in answers] == ["", ""]
    rows = [
        (e["name"], e["parameters"]["bytes"], len(e["samples"]) >= 3)
        for e in answers[0].events
        if e["event"] == "swept"
    ]
    assert rows == [(name, size, True) for name in ("all_reduce", "all_to_all") for size in (8, 4096)]
    (clock,) = [event for event in answers[0].events if event["event"] == "clock"]
    assert len(clock["rows"]) > 3
    assert all(len(row) == 2 for row in clock["rows"])


@pytest.mark.parametrize("device", ["cuda:3", "cpu"])
def test_a_group_is_told_its_gpu_before_the_first_barrier(monkeypatch, device):
    """Torch would take the one of the rank's number, also where each node counts its own."""
    told = {}

    def join(backend, **options):
        told.update(options, backend=backend)
        raise InterruptedError

    monkeypatch.setattr(dist, "init_process_group", join)
    monkeypatch.setattr(c10d, "TCPStore", lambda *_, **__: dist.HashStore())
    post = SimpleNamespace(device=torch.device(device))
    order = {"limit_s": 9.0, "one_node": False, "address": "x", "port": 1, "id": "a", "rank": 1, "world": 2}
    with pytest.raises(InterruptedError):
        run_group(post, order)
    assert told["device_id"] == (torch.device(device) if device != "cpu" else None)
