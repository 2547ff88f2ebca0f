import pathlib
from dataclasses import replace

import pytest
import yaml

from gpudoc.bench.ceilings import GpuSpec, ceiling_of, matmul_ceiling, memory_ceiling, spec_of
from gpudoc.bench.model import Ceiling, NoCeiling
from gpudoc.facts.model import Absent, CudaDevice, Driver
from tests.bench.builders import H100, machine, row, situation, with_link
from tests.fakes.machine import H100 as H100_MODEL
from tests.fakes.machine import RTX4090, T4, FakeMachine

PUBLISHED = yaml.safe_load(pathlib.Path(__file__).with_name("published_gpus.yaml").read_text())["gpus"]


def spec(card):
    major, minor = card["capability"].split(".")
    return GpuSpec(
        capability=(int(major), int(minor)),
        sm_count=card["sms"],
        brand=card["brand"],
        device_id=card.get("device_id"),
        sm_clock_mhz=card["mhz"],
        memory_clock_mhz=card["memory"][0] if "memory" in card else None,
        memory_bus_bits=card["memory"][1] if "memory" in card else None,
    )


@pytest.mark.parametrize("card", PUBLISHED, ids=lambda card: card["name"])
def test_the_computed_ceiling_is_the_published_peak(card):
    for dtype, published in card["peaks"].items():
        computed = matmul_ceiling(spec(card), dtype)
        assert isinstance(computed, Ceiling), f"{dtype}: {computed}"
        assert computed.value == pytest.approx(published, rel=0.015), dtype
    if "memory" not in card:
        return
    computed = memory_ceiling(spec(card))
    assert computed.value == pytest.approx(card["memory"][2], rel=0.015)


def test_there_are_at_least_twenty_published_gpus_each_with_its_source():
    assert len({card["name"] for card in PUBLISHED}) >= 20
    assert all(card["source"] for card in PUBLISHED)


def test_the_formula_gives_the_value_that_stands_beside_it():
    computed = matmul_ceiling(spec(PUBLISHED[0]), "fp16")
    assert "80 SMs × 512 multiply-adds per cycle × 2 × 1530 MHz" in computed.formula
    assert computed.value == pytest.approx(80 * 512 * 2 * 1530e6 / 1e12)


def test_both_clocks_give_a_share():
    measured = row("matmul", parameters={"dtype": "bf16"}, value=750.0, context={"sm_clock_mhz": 1500.0})
    found = ceiling_of(measured, situation([measured]))
    # the published clock of the tensor cores, although the card names 1980 MHz as its highest
    assert found.value == pytest.approx(132 * 2048 * 2 * 1830 / 1e6)
    assert "1830 MHz (clock of the published peak)" in found.formula
    assert found.at_measured_clock == pytest.approx(132 * 2048 * 2 * 1500 / 1e6)
    judged = replace(measured, ceiling=found)
    assert judged.share_at_measured_clock > judged.share_of_ceiling


def test_a_mig_slice_is_judged_by_its_own_multiprocessors():
    card = machine(replace(H100, mig_enabled=True))
    scene = situation([], card, sm_count=16)
    assert spec_of(scene).sm_count == 16
    assert isinstance(ceiling_of(row("device_copy"), scene), NoCeiling)


@pytest.mark.parametrize(("name", "ways"), [("h2d", 1), ("d2h", 1), ("bidirectional", 2)])
def test_the_host_link_is_that_of_the_slot_at_its_best_not_at_rest(name, ways):
    found = ceiling_of(row(name, context={"link_generation_max": 5.0, "link_width_max": 8.0}), situation([]))
    assert found.value == pytest.approx(ways * 63.015, abs=0.01 * ways)
    assert found.at_measured_clock == pytest.approx(ways * 31.508, abs=0.01 * ways)
    assert "Gen5 x16" in found.formula


def test_no_ceiling_where_the_link_is_hidden_unknown_or_maybe_not_pcie():
    hidden = machine(with_link(generation_max=Absent("virtual GPU")))
    assert "not visible" in ceiling_of(row("h2d"), situation([], hidden)).because
    future = machine(with_link(generation_max=9))
    assert "generation 9" in ceiling_of(row("h2d"), situation([], future)).because
    host = machine().host
    arm = replace(machine(), host=replace(host, architecture="aarch64"))
    assert "C2C" in ceiling_of(row("h2d"), situation([], arm)).because


def peers(*gpus):
    """A row between the first two GPUs, and a machine whose GPUs CUDA numbers as they stand here."""
    made = tuple(replace(gpu, index=i, pci_address=f"0000:{i + 1:02x}:00.0") for i, gpu in enumerate(gpus))
    devices = tuple(CudaDevice(ordinal=i, pci_address=gpu.pci_address) for i, gpu in enumerate(made))
    facts = replace(machine(), gpus=made, driver=Driver(cuda_devices=devices))
    return ceiling_of(row("p2p", parameters={"from": 0, "to": 1}), situation([], facts))


def test_every_link_carries_a_copy_where_switches_join_the_gpus():
    fabric = replace(H100, fabric_state="completed")
    assert peers(fabric, fabric, fabric).value == pytest.approx(18 * 26.5625)
    # an A100 knows of no fabric
    switched = replace(H100, capability=(8, 0), nvlink_active=12, nvlink_ends=("switch",) * 12)
    assert peers(switched, switched).value == pytest.approx(12 * 25.0)


def test_without_switches_a_pair_has_the_links_that_lead_to_each_other_and_no_more():
    def v100(*ends):
        addresses = tuple(f"0000:{end + 1:02x}:00.0" for end in ends)
        return replace(H100, capability=(7, 0), nvlink_active=len(ends), nvlink_ends=addresses)

    # six links of a mesh: two to one neighbour, one to another, none to the last
    mesh = v100(1, 1, 2, 3, 3, 3)
    assert peers(mesh, v100(0, 0)).value == pytest.approx(2 * 25.78125)
    assert peers(v100(2, 2, 3), v100(2)).value == pytest.approx(63.015, abs=0.01)
    assert "PCIe Gen5" in peers(v100(2, 2, 3), v100(2)).formula


def test_no_ceiling_where_it_is_not_known_where_the_links_lead_or_how_fast_they_are():
    hidden = replace(H100, nvlink_ends=Absent("no permission"))
    assert "leads to" in peers(hidden, hidden).because
    unknown = replace(H100, capability=(13, 0), fabric_state="completed")
    assert "not in the table" in peers(unknown, unknown).because
    assert "not known" in ceiling_of(row("p2p", parameters={"from": 0, "to": 7}), situation([])).because


def test_peers_without_nvlink_copy_over_the_slower_of_their_slots():
    fast = replace(H100, nvlink_active=0)
    slow = replace(fast, link=replace(fast.link, generation_max=4, width_max=8))
    assert peers(fast, fast).value == pytest.approx(63.015, abs=0.01)
    assert peers(fast, slow).value == peers(slow, fast).value == pytest.approx(15.754, abs=0.01)


def test_facts_that_are_missing_leave_no_ceiling_and_say_which():
    no_clock = machine(replace(H100, sm_clock_max_mhz=Absent("not supported")))
    assert "clock" in ceiling_of(row("matmul", parameters={"dtype": "bf16"}), situation([], no_clock)).because
    no_bus = machine(replace(H100, memory_bus_bits=Absent("not supported")))
    assert "bus width" in ceiling_of(row("device_read"), situation([], no_bus)).because
    nothing = situation([], machine(gpu=None))
    for name in ("matmul", "device_read", "h2d", "p2p"):
        assert isinstance(ceiling_of(row(name, parameters={"dtype": "bf16", "from": 0, "to": 1}), nothing), NoCeiling)


def cpu(*rows):
    return situation(rows, machine(gpu=None), device="cpu")


def clock(ghz, **context):
    return row("cpu_clock", "cpu", ghz, context=context)


def test_a_cpu_is_judged_by_the_clock_and_the_units_that_were_measured():
    beside = clock(3.5, fp32_fma_per_cycle=16.0, bf16_fma_per_cycle=32.0)
    product = row("cpu_matmul", "cpu", 200.0, {"dtype": "fp32", "threads": 2, "size": 1024}, {"cpu_clock_ghz": 3.0})
    found = ceiling_of(product, cpu(beside, product))
    assert found.value == pytest.approx(2 * 16 * 2 * 3.5)
    assert found.at_measured_clock == pytest.approx(2 * 16 * 2 * 3.0)
    assert "3.50 GHz" in found.formula


def test_a_slow_moment_of_the_clock_lowers_no_ceiling():
    beside = clock(2.0, fp32_fma_per_cycle=16.0)
    product = row("cpu_matmul", "cpu", 200.0, {"dtype": "fp32", "threads": 1, "size": 1024}, {"cpu_clock_ghz_max": 3.6})
    assert ceiling_of(product, cpu(beside, product)).value == pytest.approx(16 * 2 * 3.6)


def test_bf16_runs_on_the_matrix_unit_its_own_unit_or_that_of_fp32():
    product = row("cpu_matmul", "cpu", 200.0, {"dtype": "bf16", "threads": 1, "size": 1024})
    plain = ceiling_of(product, cpu(clock(3.0, fp32_fma_per_cycle=16.0)))
    assert plain.value == pytest.approx(16 * 2 * 3.0)
    assert "no bf16 units" in plain.formula
    amx = machine(gpu=None)
    amx = replace(amx, host=replace(amx.host, cpu_flags=("amx_bf16",)))
    scene = situation([clock(3.0, bf16_fma_per_cycle=64.0)], amx, device="cpu")
    assert ceiling_of(product, scene).value == pytest.approx(512 * 2 * 3.0)


def test_without_a_clock_or_units_a_cpu_has_no_ceiling():
    product = row("cpu_matmul", "cpu", 200.0, {"dtype": "fp32", "threads": 1, "size": 1024})
    assert "clock was not measured" in ceiling_of(product, cpu(product)).because
    assert "per cycle" in ceiling_of(product, cpu(clock(3.0), product)).because
    assert isinstance(ceiling_of(row("memory_copy", "cpu"), cpu(clock(3.0))), NoCeiling)


@pytest.mark.parametrize(
    ("model", "per_second", "link"),
    [(H100_MODEL, 2048 * 1830, "Gen5 x16"), (RTX4090, 256 * 1980, "Gen4 x16"), (T4, None, "Gen3 x16")],
)
def test_facts_that_were_really_collected_give_the_ceilings(tmp_path, model, per_second, link):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(model)
    fake.torch()
    collected = fake.collect(quick=True)
    scene = situation([], collected, pci_address=fake.address(0), sm_count=model.sm)
    found = ceiling_of(row("matmul", parameters={"dtype": "bf16"}), scene)
    if per_second is None:
        assert "bf16" in found.because
    else:
        assert found.value == pytest.approx(model.sm * per_second * 2 / 1e6)
    assert link in ceiling_of(row("h2d"), scene).formula
    assert ceiling_of(row("device_read"), scene).value == pytest.approx(2619 * 2 * 384 / 8 / 1e3)
    assert scene.pci.device_id == model.device_id
