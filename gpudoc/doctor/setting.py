"""The system that the evidence describes: what packager, place and driver a remedy must fit."""

from __future__ import annotations

from typing import cast

from gpudoc.doctor.model import Evidence, Packager, Place, Setting
from gpudoc.doctor.vocabulary import as_words
from gpudoc.facts.model import Absent, Fact, Gpu, GpuProcess, Machine, T
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.compatibility import capability_of
from gpudoc.knowledge.drivers import cuda_of_driver
from gpudoc.knowledge.tables import read_table
from gpudoc.patterns import Pattern

# the driver's own line names the kind of its module
_MODULE = Pattern(r"NVIDIA UNIX (Open )?(?:x86_64 |aarch64 )?Kernel Module")


def describe(evidence: Evidence) -> Setting:
    """What the evidence says of its system; an unknown stays at its plain default (pip on a host)."""
    machine = evidence.machine
    text = evidence.reading.text if evidence.reading is not None else Text(())
    gpus = known(machine.gpus) or ()
    first = gpus[0] if gpus else None
    return Setting(
        packager=_packager(machine, text),
        place=_place(machine, text),
        distribution=known(machine.host.distribution) or "",
        driver_cuda=_driver_cuda(machine),
        torch_version=known(machine.torch.version) or "",
        capability=(known(first.capability) or capability_of(known(first.name) or "")) if first else None,
        num_gpus=len(gpus) or None,
        open_module=_open_module(machine, text),
        holders={} if evidence.source == "file" else _holders(gpus),
    )


def _holders(gpus: tuple[Gpu, ...]) -> dict[int, tuple[GpuProcess, ...]]:
    """The processes of each GPU that could tell them; a GPU that could not is left out, as nobody may mean somebody."""
    return {gpu.index: gpu.processes for gpu in gpus if not isinstance(gpu.processes, Absent)}


def _open_module(machine: Machine, text: Text) -> bool | None:
    known_kind = known(machine.driver.open_kernel_module)
    if known_kind is not None:
        return known_kind
    named = text.find(_MODULE)
    return None if named is None else bool(named[1])


def _driver_cuda(machine: Machine) -> tuple[int, int] | None:
    version = known(machine.driver.module_version) or known(machine.driver.library_version)
    carried = cuda_of_driver(version) if version is not None and version[:1].isdecimal() else None
    # nvidia-smi inside a container may show the CUDA of a compat library instead of the driver's own
    return carried or known(machine.driver.cuda_version)


def known(fact: Fact[T]) -> T | None:
    """The fact's value, or None when it is absent: for wording only, never for a judgement."""
    return None if isinstance(fact, Absent) else fact


def _packager(machine: Machine, text: Text) -> Packager:
    manager = known(machine.python.manager)
    if manager in ("uv", "conda", "poetry"):
        return manager  # type: ignore[return-value]  # the three literals just compared
    return cast(Packager, _named("packagers", text) or "pip")


def _place(machine: Machine, text: Text) -> Place:
    if known(machine.host.wsl):
        return "wsl"
    if known(machine.host.jetson):
        return "jetson"
    kind, scheduler = known(machine.container.kind), known(machine.container.scheduler)
    if kind and kind != "none":
        return "kubernetes" if scheduler == "kubernetes" else "docker"
    if scheduler == "slurm":
        return "slurm"
    system = {"windows": "windows", "darwin": "macos"}.get((known(machine.host.system) or "").lower(), "host")
    return cast(Place, _named("places", text) or system)


def _named(section: str, text: Text) -> str | None:
    """The first row of places.yaml whose words stand in the text."""
    rows = read_table("places.yaml", section) if text.lines else ()
    return next((str(row["name"]) for row in rows if text.find(as_words(tuple(cast(list[str], row["any"]))))), None)
