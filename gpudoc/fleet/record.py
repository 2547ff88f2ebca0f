"""The data types of a fleet: figures by GPU and node, how they were measured, and the parts that did not answer.

History of SCHEMA gpudoc.fleet.v1 and FLEET_VERSION (raise it whenever a figure is measured differently):
1: first.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gpudoc.doctor.model import Finding, Skipped, Verdict
from gpudoc.facts.model import NOT_READ, Absent, Fact, Gpu, PciDevice

SCHEMA = "gpudoc.fleet.v1"
FLEET_VERSION = 1

Parameter = str | int | float
Better = Literal["higher", "lower"]
# alone: nothing else is measured on the node; together: every GPU of the node does the same at once
Load = Literal["alone", "together"]
# the object of one reading: a GPU; a node; two spots and the path between them; spots that share a rail; a larger set
Scope = Literal["gpu", "node", "pair", "rail", "group"]
Reason = Literal["died", "hung", "no gpudoc", "another version", "unreadable"]
Engine = Literal["srun", "torchrun", "mpirun", "none"]


class Spot(NamedTuple):
    """Where: the position of a node in the record, and of a GPU on that node; -1 is the whole node."""

    node: int
    gpu: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGpu:
    """One GPU as its node describes it; what its ceilings are made of is here, so a saved record can be judged again.

    `id` follows the card from node to node and identifies nobody (`card_id`). `rail` is the network device next to it.
    """

    index: int
    model: Fact[str] = NOT_READ
    id: Fact[str] = NOT_READ
    pci_address: Fact[str] = NOT_READ
    brand: Fact[str] = NOT_READ
    capability: Fact[tuple[int, int]] = NOT_READ
    device_id: Fact[int] = NOT_READ
    memory_bytes: Fact[int] = NOT_READ
    sm_count: Fact[int] = NOT_READ
    sm_clock_max_mhz: Fact[int] = NOT_READ
    memory_clock_max_mhz: Fact[int] = NOT_READ
    memory_bus_bits: Fact[int] = NOT_READ
    power_limit_w: Fact[float] = NOT_READ
    link_generation_max: Fact[int] = NOT_READ
    link_width_max: Fact[int] = NOT_READ
    vbios: Fact[str] = NOT_READ
    rail: Fact[str] = NOT_READ

    @classmethod
    def of(cls, gpu: Gpu, pci: PciDevice | None = None, rail: Fact[str] = NOT_READ) -> FleetGpu:
        """The GPU of a node's facts; `pci` is the same card on the bus."""
        return cls(
            index=gpu.index,
            model=gpu.name,
            id=gpu.uuid if isinstance(gpu.uuid, Absent) else card_id(gpu.uuid),
            pci_address=gpu.pci_address,
            brand=gpu.brand,
            capability=gpu.capability,
            device_id=NOT_READ if pci is None else pci.device_id,
            memory_bytes=gpu.memory_total_bytes,
            sm_count=gpu.sm_count,
            sm_clock_max_mhz=gpu.sm_clock_max_mhz,
            memory_clock_max_mhz=gpu.memory_clock_max_mhz,
            memory_bus_bits=gpu.memory_bus_bits,
            power_limit_w=gpu.power_limit_w,
            link_generation_max=gpu.link.generation_max,
            link_width_max=gpu.link.width_max,
            vbios=gpu.vbios,
            rail=rail,
        )


@dataclass(frozen=True, slots=True)
class MissingPart:
    """Why a node, or a part of what it was to measure, is not in the record: `during` names what was under way.

    `attempts` is the number of times it was asked, each time from the start.
    """

    reason: Reason
    because: str
    during: str = ""
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNode:
    """One node: its GPUs, its software, what doctor said of it, and why it fell silent, if it did.

    `host` is known only inside the allocation: it never enters a document. `id` follows the machine from record to
    record and identifies nobody (`node_id`). `versions` has the keys driver, cuda, cublas, nccl, torch, kernel,
    container, python, gpudoc and others that may differ; on a CPU, driver and cublas name their replacements.
    `clock_offset_s` is this node's clock minus rank 0's. `findings_again` are the ids of findings that a second run of
    doctor, in a new process, confirmed.
    """

    gpus: tuple[FleetGpu, ...] = ()
    host: Fact[str] = NOT_READ
    id: Fact[str] = NOT_READ
    switch: Fact[str] = NOT_READ
    versions: Mapping[str, Fact[str]] = field(default_factory=dict)
    clock_offset_s: Fact[float] = NOT_READ
    clock_error_s: Fact[float] = NOT_READ
    doctor: Fact[Verdict] = NOT_READ
    findings: tuple[Finding, ...] = ()
    findings_again: Fact[tuple[str, ...]] = NOT_READ
    unchecked: tuple[Skipped, ...] = ()
    missing: MissingPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReading:
    """Raw samples of one measure at one place, never averaged; without samples `failed` says why.

    `at` is one spot, or all spots that took part. `context` holds numbers read while sampling: sm_clock_mhz,
    memory_clock_mhz, temperature_c, power_w, throttled_share, link_generation, link_width, step_s.
    """

    at: tuple[Spot, ...]
    samples: tuple[float, ...]
    context: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure everywhere. Names as in bench (matmul, device_copy, h2d, all_reduce, train_step, ...), plus loader and
    folder of a node; busbw as nccl-tests defines it for collectives.

    `attempt` 1 is measured everywhere. 2 is the second, independent measurement: in new processes, at the spots that
    looked odd and at other spots. A spot that should take part but has no reading is reported as not measured.
    """

    name: str
    scope: Scope
    unit: str
    readings: tuple[FleetReading, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    better: Better = "higher"
    load: Load = "alone"
    attempt: int = 1

    @property
    def key(self) -> str:
        """The identity of a measure except for the attempt: 'matmul dtype=bf16 together'."""
        rest = [f"{name}={self.parameters[name]}" for name in sorted(self.parameters)]
        return " ".join([self.name, *rest, *([self.scope] if self.scope != "gpu" else []), self.load])


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What one deterministic product gave on one GPU: each digest that was seen, and how often.

    More than one means that the GPU disagrees with itself. `product` names the inputs, the shape and the type;
    `algorithm` is the one that computed it, if known. GPUs of equal model, driver, cuBLAS, product and algorithm vote
    together.
    """

    product: str
    at: Spot
    seen: Mapping[str, int]
    hot: bool = False
    attempt: int = 1
    algorithm: Fact[str] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord:
    """A whole run. `made` holds at, gpudoc, fleet_version, engine, ranks, mode; nothing in it names a host."""

    nodes: tuple[FleetNode, ...]
    measures: tuple[Measure, ...] = ()
    digests: tuple[Digest, ...] = ()
    made: Mapping[str, Parameter] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def is_of_cpus(self) -> bool:
        """Whether processes on CPUs were measured, each in place of a GPU."""
        gpus = [gpu for node in self.nodes for gpu in node.gpus]
        known = [fact for gpu in gpus for fact in (gpu.memory_bytes, gpu.capability, gpu.pci_address)]
        return bool(gpus) and all(isinstance(fact, Absent) for fact in known)

    def spots(self) -> Iterator[Spot]:
        """Every GPU, node by node."""
        for number, node in enumerate(self.nodes):
            for position in range(len(node.gpus)):
                yield Spot(number, position)


def card_id(uuid: str) -> str:
    """Twelve digits that follow a card but reveal nothing: its UUID is random and cannot be found from them."""
    return hashlib.sha256(f"gpudoc card {uuid}".encode()).hexdigest()[:12]


def node_id(machine_id: str) -> str:
    """Twelve digits that follow an installed system: a hash of /etc/machine-id, as its manual page requires."""
    return hmac.new(machine_id.strip().encode(), b"gpudoc node", hashlib.sha256).hexdigest()[:12]
