"""The system that the evidence describes: what packager, place and driver a remedy must fit."""

from __future__ import annotations

from gpudoc.doctor.model import Evidence, Packager, Place, Setting
from gpudoc.facts.model import Absent, Fact, Gpu, GpuProcess, Machine, T
from gpudoc.facts.patterns import Pattern
from gpudoc.knowledge.compatibility import capability_of
from gpudoc.knowledge.drivers import cuda_of_driver

_PLACES: tuple[tuple[Place, Pattern], ...] = (
    ("colab", Pattern(r"(?i)\bcolab\b|/content/|google\.colab")),
    ("kubernetes", Pattern(r"(?i)\bkubectl\b|kubernetes|\bnvidia\.com/gpu\b|\bkubeflow\b")),
    ("slurm", Pattern(r"(?i)\b(?:srun|sbatch|salloc|squeue|slurmstepd)\b|SLURM_")),
    ("docker", Pattern(r"(?i)\bdocker\b|\bpodman\b|docker-compose|/\.dockerenv|\bcontainerd\b|ENTRYPOINT")),
    ("wsl", Pattern(r"(?i)\bwsl\s?2?\b|microsoft-standard|/usr/lib/wsl|/dev/dxg")),
    ("jetson", Pattern(r"(?i)\bjetson\b|\bjetpack\b|\bl4t\b|tegra")),
    ("windows", Pattern(r"(?i)[A-Z]:\\\\?[\w. -]+\\|\bWin(?:Error|dows)\b|\.dll\b")),
    ("notebook", Pattern(r"(?i)\bjupyter\b|\bipython-input\b|ipykernel|\bkaggle\b")),
    ("macos", Pattern(r"(?i)\bmacos\b|darwin|mac\s?os\s?x|/Users/")),
)
_PACKAGERS: tuple[tuple[Packager, Pattern], ...] = (
    ("uv", Pattern(r"\buv (?:pip|add|sync|run|venv|lock)\b|\buv\.lock\b|tool\.uv")),
    ("poetry", Pattern(r"\bpoetry (?:add|install|run|lock)\b|tool\.poetry")),
    (
        "conda",
        Pattern(
            r"(?i)\b(?:conda|mamba) (?:install|create|activate|env|list)\b|\[conda\] (?!could not)|"
            r"(?:mini|ana)conda|miniforge|/envs/"
        ),
    ),
)

# the driver's own line names the kind of its module
_MODULE = Pattern(r"NVIDIA UNIX (Open )?(?:x86_64 |aarch64 )?Kernel Module")


def describe(evidence: Evidence) -> Setting:
    """What the evidence says of its system; an unknown stays at its plain default (pip on a host)."""
    machine = evidence.machine
    flat = evidence.reading.text.flat if evidence.reading is not None else ""
    gpus = known(machine.gpus) or ()
    first = gpus[0] if gpus else None
    return Setting(
        packager=_packager(machine, flat),
        place=_place(machine, flat),
        distribution=known(machine.host.distribution) or "",
        driver_cuda=_driver_cuda(machine),
        torch_version=known(machine.torch.version) or "",
        capability=(known(first.capability) or capability_of(known(first.name) or "")) if first else None,
        memory_total_bytes=known(first.memory_total_bytes) if first else None,
        num_gpus=len(gpus) or None,
        open_module=_open_module(machine, flat),
        holders={} if evidence.source == "file" else _holders(gpus),
    )


def _holders(gpus: tuple[Gpu, ...]) -> dict[int, tuple[GpuProcess, ...]]:
    """The processes of each GPU that could tell them; a GPU that could not is left out, as nobody may mean somebody."""
    return {gpu.index: gpu.processes for gpu in gpus if not isinstance(gpu.processes, Absent)}


def _open_module(machine: Machine, flat: str) -> bool | None:
    known_kind = known(machine.driver.open_kernel_module)
    if known_kind is not None:
        return known_kind
    named = _MODULE.search(flat)
    return None if named is None else bool(named[1])


def _driver_cuda(machine: Machine) -> tuple[int, int] | None:
    version = known(machine.driver.module_version) or known(machine.driver.library_version)
    carried = cuda_of_driver(version) if version is not None and version[:1].isdigit() else None
    # nvidia-smi inside a container may show the CUDA of a compat library instead of the driver's own
    return carried or known(machine.driver.cuda_version)


def known(fact: Fact[T]) -> T | None:
    """The fact's value, or None when it is absent: for wording only, never for a judgement."""
    return None if isinstance(fact, Absent) else fact


def _packager(machine: Machine, flat: str) -> Packager:
    manager = known(machine.python.manager)
    if manager in ("uv", "conda", "poetry"):
        return manager  # type: ignore[return-value]  # the three literals just compared
    for name, pattern in _PACKAGERS:
        if pattern.search(flat):
            return name
    return "pip"


def _place(machine: Machine, flat: str) -> Place:
    if known(machine.host.wsl):
        return "wsl"
    if known(machine.host.jetson):
        return "jetson"
    kind, scheduler = known(machine.container.kind), known(machine.container.scheduler)
    if kind and kind != "none":
        return "kubernetes" if scheduler == "kubernetes" else "docker"
    if scheduler == "slurm":
        return "slurm"
    for name, pattern in _PLACES:
        if pattern.search(flat):
            return name
    return {"windows": "windows", "darwin": "macos"}.get((known(machine.host.system) or "").lower(), "host")  # type: ignore[return-value]
