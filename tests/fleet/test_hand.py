"""A child that works, one that fails, one that hangs and one that dies: each is told apart, and none is left."""

from __future__ import annotations

import sys

import psutil
import pytest

from gpudoc.bench.sampling import SamplingPlan
from gpudoc.fleet import hand as room
from gpudoc.fleet.hand import Hand
from gpudoc.process import conversation

# a child that answers without torch; the plan is its first line
PLAYED = """
import json, os, sys, time
sys.stdin.readline()
print("a library that prints", flush=True)
print(json.dumps({"event": "ready"}), flush=True)
for line in sys.stdin:
    do = json.loads(line)["do"]
    if do == "hang":
        time.sleep(600)
    if do == "die":
        sys.exit("CUDA driver error: unknown")
    if do == "fail":
        print(json.dumps({"event": "failed", "because": "RuntimeError: no"}), flush=True)
        time.sleep(600)
    print(json.dumps({"event": "sampled", "pid": os.getpid()}), flush=True)
    print(json.dumps({"event": "done"}), flush=True)
"""


@pytest.fixture
def played(monkeypatch):
    monkeypatch.setattr(room, "PROGRAM", (sys.executable, "-c", PLAYED))
    hand = Hand(SamplingPlan(device="cpu"))
    hand.start()
    yield hand
    hand.end()
    assert not any(map(is_hand, psutil.Process().children()))


def is_hand(process: psutil.Process) -> bool:
    """Whether it is such a process; others of this one's children may end while they are looked at."""
    try:
        return "a library that prints" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def pid_of(hand: Hand) -> int:
    hand.start()
    (event,) = hand.ask({"do": "work"}, 60).events
    return event["pid"]


def test_one_process_does_order_after_order(played):
    assert pid_of(played) == pid_of(played)


@pytest.mark.parametrize(
    ("do", "said"), [("fail", "RuntimeError: no"), ("die", "CUDA driver error"), ("hang", "nothing was heard within")]
)
def test_after_a_failure_the_reason_is_told_and_the_next_order_finds_a_new_process(played, do, said):
    before = pid_of(played)
    answer = played.ask({"do": do}, 0.5 if do == "hang" else 60)
    assert said in answer.failed
    assert answer.hung == (do == "hang")
    assert not psutil.pid_exists(before)
    assert pid_of(played) != before


def test_it_may_be_ended_while_it_is_being_ended(played, monkeypatch):
    """A thread that waits for an answer ends its process, and the run that is over ends all."""
    end_family = conversation.end_family

    def and_again(process, **patience):
        monkeypatch.setattr(conversation, "end_family", end_family)
        played.end()
        end_family(process, **patience)

    monkeypatch.setattr(conversation, "end_family", and_again)
    played.end()


def test_a_real_child_gives_the_same_digests_as_another_one():
    seen = []
    for _ in range(2):
        hand = Hand(SamplingPlan(device="cpu"))
        try:
            hand.start()
            answer = hand.ask({"do": "digests", "size": 64, "seconds": 0.05}, 120)
            assert answer.failed == ""
            seen.append({event["product"]: tuple(event["seen"]) for event in answer.events if "product" in event})
        finally:
            hand.end()
    assert seen[0] == seen[1]
    assert set(seen[0]) == {"mm fp32 64", "mm bf16 64"}
