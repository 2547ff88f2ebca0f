"""Messages in a store, and waiting that ends: for who answers, for who is silent, and for a store that is gone."""

from __future__ import annotations

import subprocess
import time

import pytest

from gpudoc.errors import GpudocError
from gpudoc.fleet import meeting
from gpudoc.fleet.meeting import LeaderLostError, Meeting, open_store
from gpudoc.fleet.place import EnginePlace
from gpudoc.process.arguments import own_python
from gpudoc.process.seal import Seal
from tests.fleet.allocation import free_port
from tests.waiting import wait_until


class Memory(dict):
    """A store in this process."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)


class Gone(Memory):
    def check(self, keys):
        raise RuntimeError("Connection was likely closed. Did the remote server shutdown?")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(meeting, "SILENCE_S", 0.2)


def of(store, rank=0, world=3, seal=None) -> Meeting:
    return Meeting(store, EnginePlace(engine="srun", rank=rank, world=world), seal)


def test_answers_are_gathered_and_who_is_silent_is_left_out_of_them(impatient):
    here = of(Memory())
    here.say("reply/0/0", {"a": 1})
    here.say("reply/0/1", {"b": 2})
    awaited = []
    assert here.gather({0: "reply/0", 1: "reply/0", 2: "reply/0"}, 60, awaited.append) == {0: {"a": 1}, 1: {"b": 2}}
    assert awaited[0] == 1
    assert awaited[-1] == 0


def test_who_beats_lives_and_who_has_stopped_does_not(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(meeting.time, "monotonic", lambda: now[0])
    store = Memory()
    here = of(store)
    # one that has yet to begin is given as long
    assert here.lives(1)
    store.set("beat/1", "1")
    now[0] += 29
    assert here.lives(1)
    now[0] += 29
    assert here.lives(1)
    now[0] += 2
    assert not here.lives(1)
    store.set("beat/1", "2")
    assert here.lives(1)


def test_a_process_beats_while_it_does_something_else():
    store = Memory()
    worker = of(store, rank=1)
    worker.begin()
    try:
        wait_until(lambda: store.get("beat/1") == b"2" if store.check(["beat/1"]) else False)
    finally:
        worker.end()


def test_no_thread_is_left_inside_the_store_once_the_meeting_has_ended():
    class Slow(Memory):
        inside = False

        def set(self, key, value):
            self.inside = True
            time.sleep(0.3)
            self.inside = False

    store = Slow()
    worker = of(store, rank=1)
    worker.begin()
    wait_until(lambda: store.inside)
    worker.end()
    assert not store.inside


@pytest.mark.parametrize(("raw", "said"), [(b'{"half": ', "not JSON"), (b"[1]", "list"), (b"\xff\xfe", "not JSON")])
def test_half_a_message_is_said_to_be_one(raw, said):
    store = Memory({"reply/0/1": raw})
    assert said in of(store).gather({1: "reply/0"}, 1, lambda _: None)[1]


def test_an_order_is_awaited_and_the_end_heard(impatient):
    store = Memory()
    leader, here = of(store), of(store, rank=1)
    leader.say("order/0/1", {"do": "roster"})
    assert here.await_order(0, 1) == {"do": "roster"}
    leader.say("end", {})
    assert here.await_order(1, 1) is None


def test_with_a_key_only_those_who_have_it_are_heard(impatient):
    store = Memory()
    ours, other = Seal("the key of this run"), Seal("the key of another run")
    leader, here = of(store, seal=ours), of(store, rank=1, seal=ours)
    for stranger in (of(store), of(store, seal=other)):
        stranger.say("reply/0/2", {"answers": {}})
        assert "not signed" in leader.gather({2: "reply/0"}, 1, lambda _: None)[2]
    # what was said for another order is not one for this
    leader.say("order/0/2", {"do": "restart"})
    store["order/0/1"] = store["order/0/2"]
    assert isinstance(here.read("order/0/1"), str)
    leader.say("order/0/1", {"do": "roster"})
    assert here.await_order(0, 1) == {"do": "roster"}


def test_a_strangers_order_is_not_awaited_for_and_not_done(impatient):
    store = Memory()
    here = of(store, rank=1, seal=Seal("the key of this run"))
    of(store).say("order/0/1", {"do": "children"})
    of(store).say("end", {})
    with pytest.raises(LeaderLostError):
        here.await_order(0, 1)


def test_where_all_are_on_one_machine_nobody_else_can_reach_the_store():
    """In a process of its own, whose sockets are only the store's."""
    code = (
        "from gpudoc.fleet.meeting import open_store; from gpudoc.fleet.place import EnginePlace; import os;"
        "store, port = open_store(EnginePlace(engine='none')); store.set('a', 'b');"
        "from tests.listeners import listening;"
        "print(len(listening(os.getpid())), listening(os.getpid(), beyond_loopback=True))"
    )
    done = subprocess.run(own_python(code), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1 []\n", 0), done.stderr


def test_a_leader_that_is_not_heard_is_not_waited_for(impatient):
    with pytest.raises(LeaderLostError, match="rank 0 has not been heard"):
        of(Memory(), rank=1).await_order(0, 1)


def test_a_store_that_is_gone_is_told_in_one_line():
    with pytest.raises(LeaderLostError, match="store has ended: Connection was likely closed"):
        of(Gone(), rank=1).await_order(0, 1)


def test_a_port_that_is_taken_and_a_rank_0_that_does_not_come_are_told(monkeypatch):
    port = free_port()
    place = EnginePlace(engine="srun", world=2, port=port)
    store, same = open_store(place)
    assert same == port
    store.set("key", "value")
    assert store.get("key") == b"value"
    with pytest.raises(GpudocError, match="in use"):
        open_store(place)
    monkeypatch.setattr(meeting, "JOIN_S", 1.0)
    with pytest.raises(GpudocError, match="could not reach rank 0"):
        open_store(EnginePlace(engine="srun", rank=1, world=2, port=free_port()))
