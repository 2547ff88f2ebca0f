"""Readings, rows and machines for the tests of judgement, as a run on such a machine would give them."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.bench.model import Measurement, RawReading, Situation
from gpudoc.bench.settle import settle
from gpudoc.facts.model import Container, Gpu, Host, Link, Machine, PciDevice

H100 = Gpu(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    brand="nvidia",
    capability=(9, 0),
    pci_address="0000:18:00.0",
    sm_count=132,
    sm_clock_max_mhz=1980,
    memory_clock_max_mhz=2619,
    memory_bus_bits=5120,
    mig_enabled=False,
    virtualization="none",
    numa_node=0,
    power_limit_w=700.0,
    link=Link(generation=1, generation_max=5, generation_gpu_max=5, width=16, width_max=16),
    nvlink_active=18,
)


def machine(gpu=H100, **host):
    facts = Host(system="Linux", architecture="x86_64", cpu_flags=("avx2", "fma"), numa_nodes=1, **host)
    bus = PciDevice(
        address="0000:18:00.0", vendor_id=0x10DE, device_id=0x2330, class_code=0x030200, port_speed_max_gt_s=32.0
    )
    return Machine(gpus=(gpu,) if gpu else (), pci=(bus,), host=facts, container=Container())


def reading(name="h2d", device="cuda:0", samples=(50.0,) * 9, unit="GB/s", **rest):
    return RawReading(
        name=name, device=device, parameters=rest.pop("parameters", {}), unit=unit, samples=samples, **rest
    )


def row(name="h2d", device="cuda:0", value=50.0, parameters=None, context=None, **rest) -> Measurement:
    made = reading(name, device, (value,) * 9, parameters=parameters or {}, context=context or {}, **rest)
    return settle([made])[0]


def situation(rows, machine_=None, device="cuda:0", **environment):
    known = {"sm_count": 132, "pci_address": "0000:18:00.0"} if device.startswith("cuda") else {}
    return Situation(
        machine=machine_ or machine(), device=device, environment={**known, **environment}, rows=tuple(rows)
    )


def with_link(**changes) -> Gpu:
    return replace(H100, link=replace(H100.link, **changes))
