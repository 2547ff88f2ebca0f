from dataclasses import replace

from gpudoc.bench.model import Ceiling, NoCeiling
from gpudoc.facts.model import Absent, Machine
from tests.bench.builders import H100, machine, reading, row, situation


def test_a_key_does_not_depend_on_the_order_of_parameters():
    one = reading(parameters={"bytes": 1, "host": "pinned"})
    two = reading(parameters={"host": "pinned", "bytes": 1})
    assert one.key == two.key == "h2d cuda:0 bytes=1 host=pinned"


def test_shares_need_a_value_a_ceiling_and_a_clock():
    measured = row(value=40.0)
    assert measured.share_of_ceiling is None
    full = replace(measured, ceiling=Ceiling(80.0, "f", 50.0))
    assert full.share_of_ceiling == 0.5
    assert full.share_at_measured_clock == 0.8
    assert replace(full, value=None).share_of_ceiling is None
    assert replace(full, ceiling=Ceiling(80.0, "f")).share_at_measured_clock is None
    assert replace(full, ceiling=NoCeiling("x")).share_at_measured_clock is None


def test_the_gpu_is_found_by_its_address_because_a_mask_renumbers():
    first, second = replace(H100, index=0, pci_address="0000:17:00.0"), replace(H100, index=1)
    two = replace(machine(), gpus=(first, second))
    assert situation([], two, device="cuda:0").gpu is second
    assert situation([], two, device="cuda:0", pci_address="").gpu is first
    assert situation([], two, device="cpu").gpu is None
    assert situation([], Machine(gpus=Absent("no driver"))).gpu is None


def test_the_gpu_on_the_bus():
    assert situation([]).pci.device_id == 0x2330
    assert situation([], replace(machine(), pci=Absent("no bus"))).pci is None
