"""What the frozen facts promise: absence is a value of its own, and nothing can be changed."""

from __future__ import annotations

import dataclasses

import pytest

from gpudoc.facts import model
from gpudoc.facts.model import NOT_READ, Absent, Gpu, Host, Machine

KINDS = [k for k in vars(model).values() if isinstance(k, type) and dataclasses.is_dataclass(k) and k is not Absent]


def test_absence_cannot_be_reckoned_with():
    gpu = Gpu(index=0)
    with pytest.raises(TypeError):
        gpu.memory_total_bytes + 1
    with pytest.raises(TypeError):
        assert gpu.temperature_c > 90
    assert gpu.lost is not False
    assert Absent("no permission") != Absent("not supported")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_facts_are_frozen_and_absent_until_read(kind):
    assert kind.__dataclass_params__.frozen
    for field in dataclasses.fields(kind):
        if str(field.type).startswith("Fact["):
            assert field.default == NOT_READ, field.name


def test_a_machine_of_which_nothing_is_known_can_be_written_down():
    machine = Machine()
    assert machine.host == Host()
    with pytest.raises(dataclasses.FrozenInstanceError):
        machine.host = Host(cpu_count=1)
