"""Ids that follow a card and a machine without naming them."""

from __future__ import annotations

from gpudoc.facts.model import Absent, Gpu
from gpudoc.fleet.record import FleetGpu, Measure, card_id, node_id


def test_a_cards_id_follows_it_and_does_not_hold_its_uuid():
    first = FleetGpu.of(Gpu(index=0, uuid="GPU-5d31a5e8-9d2f-4a0c-8b6e-1f2e3d4c5b6a"))
    moved = FleetGpu.of(Gpu(index=7, uuid="GPU-5d31a5e8-9d2f-4a0c-8b6e-1f2e3d4c5b6a"))
    assert first.id == moved.id == card_id("GPU-5d31a5e8-9d2f-4a0c-8b6e-1f2e3d4c5b6a")
    assert "5d31a5e8" not in str(first)


def test_a_card_without_a_uuid_has_no_id():
    gpu = FleetGpu.of(Gpu(index=0, uuid=Absent("not asked")))
    assert gpu.id == Absent("not asked")


def test_a_machines_id_is_the_same_with_or_without_the_files_last_newline():
    assert node_id("4f1c0bd0a5\n") == node_id("4f1c0bd0a5") != node_id("4f1c0bd0a6")


def test_measures_of_two_attempts_have_one_key_and_other_loads_another():
    first = Measure(name="matmul", scope="gpu", unit="TFLOP/s", readings=(), parameters={"dtype": "bf16"})
    again = Measure(name="matmul", scope="gpu", unit="TFLOP/s", readings=(), parameters={"dtype": "bf16"}, attempt=2)
    hot = Measure(
        name="matmul", scope="gpu", unit="TFLOP/s", readings=(), parameters={"dtype": "bf16"}, load="together"
    )
    assert first.key == again.key == "matmul dtype=bf16 alone"
    assert hot.key != first.key
