"""What heat did to a GPU while a trial ran, from its counters; and that the trial is measured again for it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from gpudoc.facts.gpu_counters import GpuCounters
from gpudoc.facts.model import NOT_READ, Absent
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.search import heat
from gpudoc.tune.search.heat import readers_of, watched
from gpudoc.tune.search.repetition import Repetition
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest
from tests.machines.built import gpu, machine

TRIAL = Trial(
    request=TrialRequest(kind="speed", batches=(8,)),
    end=End.FITS,
    points=(Point(batch=8, step_s=(0.1,) * 8),),
    seconds=1.0,
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(heat, "_LOOK_S", 0.0)


class Card:
    """A GPU that answers each look with the next of its reasons, and the last one from then on."""

    def __init__(self, *reasons, processes=NOT_READ):
        self.reasons, self.seen, self.processes = list(reasons), threading.Event(), processes

    def read(self):
        found = self.reasons[0]
        if len(self.reasons) > 1:
            self.reasons.pop(0)
        else:
            self.seen.set()
        return GpuCounters(throttle_reasons=found, num_processes=self.processes)

    def run(self):
        """A trial that lasts until all its reasons were seen."""
        assert self.seen.wait(60)
        return TRIAL


def hot_share(card):
    return watched(card.run, [card.read]).measured.get("hot_share")


def test_heat_counts_and_the_power_limit_does_not():
    assert hot_share(Card(("sw_thermal",))) == 1.0
    assert hot_share(Card(("sw_power_cap",))) == 0.0
    assert 0 < hot_share(Card(("hw_thermal",), ("sw_power_cap",))) < 1


def test_what_a_gpu_says_at_rest_or_not_at_all_tells_nothing():
    assert hot_share(Card(("gpu_idle", "sw_thermal"))) is None
    assert hot_share(Card(Absent("not supported"))) is None
    assert watched(lambda: TRIAL, ()) is TRIAL


def test_the_hottest_of_several_gpus_counts():
    cool, hot = Card(()), Card(("hw_slowdown",))

    def run():
        return cool.run() and hot.run()

    assert watched(run, [cool.read, hot.read]).measured["hot_share"] == 1.0


def test_a_trial_in_the_heat_is_measured_again_and_said_to_be_in_doubt():
    said, card = [], Card(("sw_thermal",))
    best = Repetition([card.read]).least_disturbed(card.run, budget_s=600.0, say=said.append)
    assert best.is_disturbed
    assert said == ["  heat cut the GPU's clocks in up to 100% of its working time: measured again"] * 2
    assert "heat cut the GPU's clocks" in str(noise_of([best]))


def test_a_neighbour_on_the_card_puts_a_trial_in_doubt_and_its_own_process_does_not():
    alone, shared = (watched(card.run, [card.read]) for card in (Card((), processes=1), Card((), processes=2)))
    assert alone.measured["neighbour_share"] == 0
    assert not alone.is_disturbed
    assert shared.measured["neighbour_share"] == 1.0
    assert shared.is_disturbed
    assert str(noise_of([shared])).startswith("another process was on the GPU for up to 100% of the time")
    # one that was seen only now and then is one that has not gone yet
    passing = TRIAL.model_copy(update={"measured": {"neighbour_share": 0.3}})
    assert not passing.is_disturbed


def test_the_gpus_of_a_search_are_found_by_their_addresses(monkeypatch):
    opened = []
    monkeypatch.setattr(heat, "open_counters", lambda address: opened.append(address) or Absent("no NVML"))
    two = machine(gpu(0), gpu(1))
    assert readers_of([1], two) == ()
    assert opened == [two.gpus[1].pci_address]
    assert readers_of([0], replace(two, gpus=Absent("hangs"))) == ()
