from __future__ import annotations

from gpudoc.facts import topology
from gpudoc.facts.model import Absent
from tests.fakes.machine import H100, FakeMachine


def test_gpus_are_found_with_driver_and_link(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.pci("0000:17:00.0", 0x10DE, H100.device_id, 0x030200, "nvidia")
    machine.pci("0000:00:1f.0", 0x8086, 0x7A0C, 0x060100, None)
    (device,) = topology.collect(machine.root)
    assert (device.vendor_id, device.device_id, device.driver) == (0x10DE, 0x2330, "nvidia")
    assert (device.link_speed_gt_s, device.link_speed_max_gt_s, device.link_width) == (2.5, 16.0, 16)
    assert (device.numa_node, device.answers) == (0, True)


def test_the_upstream_port_is_the_parent_in_the_tree_of_devices(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.pci("0000:17:00.0", 0x10DE, H100.device_id, 0x030200, "nvidia")
    port = (machine.root / "sys/bus/pci/devices/0000:17:00.0").resolve().parent
    (port / "max_link_speed").write_text("8.0 GT/s PCIe\n")
    (port / "max_link_width").write_text("8\n")
    (device,) = topology.collect(machine.root)
    assert (device.port_speed_max_gt_s, device.port_width_max) == (8.0, 8)


def test_a_device_that_is_gone_reads_all_ones(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.pci("0000:17:00.0", 0x10DE, H100.device_id, 0x030200, "nvidia")
    (machine.root / "sys/bus/pci/devices/0000:17:00.0/config").write_bytes(b"\xff" * 64)
    (device,) = topology.collect(machine.root)
    assert device.answers is False


def test_unknown_links_and_no_driver_are_absent(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.pci("0000:17:00.0", 0x10DE, H100.device_id, 0x030200, None)
    machine.file("sys/bus/pci/devices/0000:17:00.0/current_link_speed", "Unknown\n")
    machine.file("sys/bus/pci/devices/0000:17:00.0/current_link_width", "255\n")
    (device,) = topology.collect(machine.root)
    assert device.driver == Absent("no driver bound")
    assert isinstance(device.link_speed_gt_s, Absent)
    assert isinstance(device.link_width, Absent)


def test_a_machine_without_the_bus_says_so(tmp_path):
    assert topology.collect(tmp_path) == Absent("no such file: /sys/bus/pci/devices")


def test_the_number_of_a_gpus_device_file_is_told_by_the_driver(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.pci("0000:17:00.0", 0x10DE, H100.device_id, 0x030200, "nvidia")
    assert isinstance(topology.collect(machine.root)[0].minor, Absent)
    machine.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "IRQ: 188\nDevice Minor: \t 3\nGPU Excluded: No\n")
    assert topology.collect(machine.root)[0].minor == 3
    machine.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Device Minor: \t 3\nGPU Excluded: \t Yes\n")
    assert topology.collect(machine.root)[0].minor == topology.EXCLUDED


def test_a_slice_made_for_a_virtual_machine_is_no_gpu_of_this_one(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    for address in ("0000:17:00.0", "0000:17:00.4"):
        machine.pci(address, 0x10DE, H100.device_id, 0x030200, "nvidia")
    (machine.root / "sys/bus/pci/devices/0000:17:00.4/physfn").symlink_to("../0000:17:00.0")
    assert [device.address for device in topology.collect(machine.root)] == ["0000:17:00.0"]


def test_the_nearest_network_device_shares_most_of_the_way_with_the_card(tmp_path):
    ports = tmp_path / "sys/devices"
    ways = {
        "0000:17:00.0": "pci0000:16/0000:16:01.0/0000:17:00.0",
        "0000:18:00.0": "pci0000:16/0000:16:02.0/0000:18:00.0",
        "0000:97:00.0": "pci0000:96/0000:96:01.0/0000:97:00.0",
    }
    for address, way in ways.items():
        (ports / way).mkdir(parents=True)
        link = tmp_path / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ports / way)
    for name, address in (("mlx5_0", "0000:97:00.0"), ("mlx5_1", "0000:18:00.0")):
        folder = tmp_path / "sys/class/infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(ports / ways[address])
    # NVML writes eight digits of the domain
    assert topology.nearest_network_device("00000000:17:00.0", tmp_path) == "mlx5_1"


def test_without_rdma_devices_there_is_no_nearest_one(tmp_path):
    assert isinstance(topology.nearest_network_device("0000:17:00.0", tmp_path), Absent)
