"""Two runs on one card side by side: what one found and the other did not, and figures that lie apart."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.gpu_check.model import Outcome, Record

# figures of one card repeat within this, whichever way they are measured
APART = 0.05
# of a machine: what another driver, torch or card changes is no fault of the second run
SAME_MACHINE = ("gpu0.name", "driver", "torch", "gpus")


def compare_outcomes(first: Outcome, second: Outcome) -> Iterator[str]:
    """In words what differs between two outcomes of one step."""
    name = first.step
    if first.state != second.state:
        yield f"{name}: {first.state} at first, {second.state} then"
    if first.facts.get("findings") != second.facts.get("findings"):
        yield f"{name}: findings {first.facts.get('findings')} at first, {second.facts.get('findings')} then"
    then = {one.name: one for one in second.comparisons}
    for one in first.comparisons:
        again = then.get(one.name)
        if again is None:
            yield f"{name}: {one.name} was measured at first and not then"
        elif abs(again.measured - one.measured) > APART * abs(one.measured):
            yield f"{name}: {one.name}: {one.measured:.5g} {one.unit} at first, {again.measured:.5g} {one.unit} then"


def compare_records(first: Record, second: Record) -> list[str]:
    """What differs between two runs; steps that only one of them ran are left alone."""
    found = [
        f"{name}: {first.machine.get(name)} at first, {second.machine.get(name)} then"
        for name in SAME_MACHINE
        if first.machine.get(name) != second.machine.get(name)
    ]
    then = {one.step: one for one in second.outcomes if one.state != "left out"}
    for outcome in first.outcomes:
        if outcome.state != "left out" and outcome.step in then:
            found += compare_outcomes(outcome, then[outcome.step])
    return found
