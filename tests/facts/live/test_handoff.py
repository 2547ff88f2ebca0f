from gpudoc.facts.live import handoff
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Handoff


def test_a_real_exchange_between_two_processes_is_timed():
    found = handoff.measure()
    assert isinstance(found, Handoff)
    assert found.free_s > 0
    assert found.held_s >= 0


def test_an_exchange_that_takes_too_long_or_fails_is_absent(monkeypatch):
    monkeypatch.setattr(handoff, "DEADLINE_S", 0.01)
    assert isinstance(handoff.measure(), Absent)
    monkeypatch.setattr(handoff, "DEADLINE_S", 60.0)
    monkeypatch.setattr(handoff, "_BOOT", "import sys; sys.exit(1)")
    assert isinstance(handoff.measure(), Absent)
