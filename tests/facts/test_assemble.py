"""Facts of several children become one machine; every gap says whose silence it is."""

from __future__ import annotations

from types import SimpleNamespace

from gpudoc.facts.assemble import device_states, machine_from, tryable_devices, with_total
from gpudoc.facts.model import Absent

GIB = 1 << 30


def child(name, facts=(), failure="", items=()):
    told = [(tuple(path.split(".")), value, False) for path, value in dict(facts).items()]
    told += [(tuple(path.split(".")), value, True) for path, value in items]
    return SimpleNamespace(name=name, facts=told, failure=failure, seconds=0.5)


def gpu(index, **more):
    values = {"index": index, "pci_address": f"0000:{index + 1:02d}:00.0", "processes": [], "compute_mode": "default",
              "memory_free_bytes": 8 * GIB, **more}  # fmt: skip
    return {f"gpus.{index}": {"index": index}, **{f"gpus.{index}.{key}": value for key, value in values.items()}}


def device(ordinal, address):
    return {"ordinal": ordinal, "pci_address": address, "sm_count": 132}


def test_sections_are_filled_by_several_children():
    machine = machine_from(
        [child("files", {"host.cpu_count": 8}), child("slow_files", {"host.disk_free_bytes": 5})], {}, quick=False
    )
    assert (machine.host.cpu_count, machine.host.disk_free_bytes) == (8, 5)


def test_a_gap_carries_the_failure_of_who_should_have_told():
    failure = "no answer within 8 s: nvmlDeviceGetCount"
    machine = machine_from([child("nvml", {"driver.nvml_code": 0}, failure), child("files")], {}, quick=False)
    assert machine.driver.nvml_code == 0
    assert machine.gpus == Absent(failure)
    assert machine.driver.cuda_version == Absent(failure)
    assert machine.probe_failures == {"nvml": failure}


def test_gpus_told_before_a_hang_are_kept():
    machine = machine_from(
        [child("nvml", {"gpus": [], **gpu(0, name="A"), **gpu(1, name="B")}, "no answer within 8 s: x")],
        {},
        quick=False,
    )
    assert [one.name for one in machine.gpus] == ["A", "B"]


def test_what_only_libcuda_knows_is_joined_by_address():
    cuda = child("cuda", {"driver.cuda_devices": [device(0, "0000:02:00.0")]})
    machine = machine_from([child("nvml", {**gpu(0), **gpu(1)}), cuda], {}, quick=False)
    assert isinstance(machine.gpus[0].sm_count, Absent)
    assert machine.gpus[1].sm_count == 132


def test_quick_says_what_was_not_asked():
    machine = machine_from([child("torch", {"torch.version": "2.6.0"})], {}, quick=True)
    assert machine.torch.version == "2.6.0"
    assert machine.torch.arch_list == Absent("not asked (--quick)")


def test_only_idle_gpus_are_tried_and_the_others_say_why():
    nvml = child("nvml", {
        **gpu(0), **gpu(1, processes=[{"pid": 7}]), **gpu(2, compute_mode="exclusive_process"),
        **gpu(3, memory_free_bytes=GIB // 2),
    })  # fmt: skip
    devices = [device(i, f"0000:{i + 1:02d}:00.0") for i in range(4)] + [device(4, "0000:09:00.0")]
    cuda = child("cuda", {"driver.cuda_devices": devices})
    assert device_states(nvml, cuda) == {
        0: "", 1: "a process uses the GPU", 2: "compute mode exclusive_process", 3: "less than 1 GiB is free",
        4: "it is not known who uses the GPU",
    }  # fmt: skip
    assert tryable_devices(nvml, cuda) == [0]


def test_devices_left_alone_are_listed_as_skipped():
    nvml = child("nvml", {**gpu(0), **gpu(1, processes=[{"pid": 7}])})
    cuda = child("cuda", {"driver.cuda_devices": [device(0, "0000:01:00.0"), device(1, "0000:02:00.0")]})
    ran = {"device": 0, "ran": True, "error": ""}
    torch = child("torch", {"torch.is_available": True}, items=[("torch.kernel_checks", ran)])
    checks = machine_from([nvml, cuda, torch], {}, quick=False).torch.kernel_checks
    assert [(check.device, check.ran, check.skipped) for check in checks] == [
        (0, True, ""),
        (1, False, "a process uses the GPU"),
    ]


def test_the_total_is_added():
    machine = with_total(machine_from([child("files")], {}, quick=False), 1.25)
    assert machine.probe_seconds == {"files": 0.5, "collect": 1.25}
