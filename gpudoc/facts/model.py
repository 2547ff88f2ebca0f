"""Frozen records that describe a machine. An unreadable fact is `Absent(reason)`, which allows no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeVar, Union

from gpudoc.frozen import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Absent:
    """A fact that is not known, and why: 'no permission', 'not supported', 'not asked (--quick)'."""

    reason: str


Fact = Union[T, Absent]

NOT_READ = Absent("not read")
# the only reason that means "this does not exist here"; all other reasons mean "it may exist, but it is unknown"
NOT_SUPPORTED = "not supported by this GPU or driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """One display or accelerator device on the PCI bus (`lspci -nnk -d 10de:`)."""

    address: str
    vendor_id: int
    device_id: int
    class_code: int
    driver: Fact[str] = NOT_READ
    link_speed_gt_s: Fact[float] = NOT_READ
    link_speed_max_gt_s: Fact[float] = NOT_READ
    link_width: Fact[int] = NOT_READ
    link_width_max: Fact[int] = NOT_READ
    port_speed_max_gt_s: Fact[float] = NOT_READ
    port_width_max: Fact[int] = NOT_READ
    numa_node: Fact[int] = NOT_READ
    answers: Fact[bool] = NOT_READ
    minor: Fact[int] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file and whether this user can open it (`ls -l /dev/nvidia*`)."""

    path: str
    exists: bool
    opens: Fact[bool] = NOT_READ
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """One device as libcuda numbers it, after CUDA_VISIBLE_DEVICES (`nvidia-smi -L` numbers all of them)."""

    ordinal: int
    name: Fact[str] = NOT_READ
    pci_address: Fact[str] = NOT_READ
    capability: Fact[tuple[int, int]] = NOT_READ
    sm_count: Fact[int] = NOT_READ
    clock_mhz: Fact[int] = NOT_READ
    memory_clock_mhz: Fact[int] = NOT_READ
    memory_bus_bits: Fact[int] = NOT_READ
    l2_cache_bytes: Fact[int] = NOT_READ
    integrated: Fact[bool] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The GPU driver: kernel module, user-space library, and what NVML and cuInit answered."""

    vendor: Fact[str] = NOT_READ
    module_version: Fact[str] = NOT_READ
    library_version: Fact[str] = NOT_READ
    cuda_version: Fact[tuple[int, int]] = NOT_READ
    open_kernel_module: Fact[bool] = NOT_READ
    modules: Fact[tuple[str, ...]] = NOT_READ
    nvml_code: Fact[int] = NOT_READ
    nvml_message: Fact[str] = NOT_READ
    cu_init_code: Fact[int] = NOT_READ
    cu_init_name: Fact[str] = NOT_READ
    libcuda_path: Fact[str] = NOT_READ
    libcuda_system_path: Fact[str] = NOT_READ
    nvml_driver_version: Fact[str] = NOT_READ
    libcuda_cuda_version: Fact[tuple[int, int]] = NOT_READ
    cuda_devices: Fact[tuple[CudaDevice, ...]] = NOT_READ
    preserve_memory_on_suspend: Fact[int] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A GPU's PCIe link: now, the most that GPU and slot can do, the most the GPU alone can do.

    `replays_added` is the increase of the replay counter between two readings, some milliseconds apart.
    """

    generation: Fact[int] = NOT_READ
    generation_max: Fact[int] = NOT_READ
    generation_gpu_max: Fact[int] = NOT_READ
    width: Fact[int] = NOT_READ
    width_max: Fact[int] = NOT_READ
    replays: Fact[int] = NOT_READ
    replays_added: Fact[int] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU; `name` is the executable's base name only.

    `sm_percent` is its highest use of the SMs in the last seconds (`nvidia-smi pmon -c 1`). `command` is the program
    and script without arguments. `own` is whether it belongs to the user who runs gpudoc. `container` and `job` can be
    stopped instead of the process: 'docker 3f2a91c04d17', 'slurm 4711'.
    """

    pid: int
    memory_bytes: Fact[int] = NOT_READ
    sm_percent: Fact[int] = NOT_READ
    name: Fact[str] = NOT_READ
    alive: Fact[bool] = NOT_READ
    user: Fact[str] = NOT_READ
    own: Fact[bool] = NOT_READ
    age_s: Fact[float] = NOT_READ
    command: Fact[str] = NOT_READ
    container: Fact[str] = NOT_READ
    job: Fact[str] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver describes it; units are the suffixes (`nvidia-smi -q`).

    `nvml_code` is 0 once every question was asked and no answer said that the GPU is lost (15), needs a reset (16) or
    cannot answer what every GPU answers; `nvml_question` is the question that failed. `memory_accounted_bytes` is the
    total that all programs hold that compute, draw or share the GPU. Counters that end in `_added` are the increase
    between two readings, some milliseconds apart.
    """

    index: int
    name: Fact[str] = NOT_READ
    brand: Fact[str] = NOT_READ
    uuid: Fact[str] = NOT_READ
    pci_address: Fact[str] = NOT_READ
    capability: Fact[tuple[int, int]] = NOT_READ
    memory_total_bytes: Fact[int] = NOT_READ
    memory_used_bytes: Fact[int] = NOT_READ
    memory_free_bytes: Fact[int] = NOT_READ
    bar1_total_bytes: Fact[int] = NOT_READ
    processes: Fact[tuple[GpuProcess, ...]] = NOT_READ
    memory_accounted_bytes: Fact[int] = NOT_READ
    utilization_percent: Fact[int] = NOT_READ
    sm_count: Fact[int] = NOT_READ
    num_cores: Fact[int] = NOT_READ
    sm_clock_mhz: Fact[int] = NOT_READ
    sm_clock_max_mhz: Fact[int] = NOT_READ
    memory_clock_mhz: Fact[int] = NOT_READ
    memory_clock_max_mhz: Fact[int] = NOT_READ
    memory_bus_bits: Fact[int] = NOT_READ
    l2_cache_bytes: Fact[int] = NOT_READ
    throttle_reasons: Fact[tuple[str, ...]] = NOT_READ
    throttle_counters_ns: Fact[Mapping[str, int]] = NOT_READ
    thermal_slowdown_ns: Fact[int] = NOT_READ
    power_w: Fact[float] = NOT_READ
    power_limit_w: Fact[float] = NOT_READ
    power_limit_default_w: Fact[float] = NOT_READ
    power_limit_min_w: Fact[float] = NOT_READ
    power_limit_max_w: Fact[float] = NOT_READ
    temperature_c: Fact[int] = NOT_READ
    temperature_slowdown_c: Fact[int] = NOT_READ
    temperature_margin_c: Fact[int] = NOT_READ
    performance_state: Fact[int] = NOT_READ
    persistence: Fact[bool] = NOT_READ
    compute_mode: Fact[str] = NOT_READ
    mig_enabled: Fact[bool] = NOT_READ
    mig_pending: Fact[bool] = NOT_READ
    mig_instances: Fact[int] = NOT_READ
    ecc_enabled: Fact[bool] = NOT_READ
    ecc_pending: Fact[bool] = NOT_READ
    ecc_uncorrected_volatile: Fact[int] = NOT_READ
    ecc_uncorrected_aggregate: Fact[int] = NOT_READ
    ecc_corrected_aggregate: Fact[int] = NOT_READ
    sram_threshold_exceeded: Fact[bool] = NOT_READ
    retired_pages_pending: Fact[bool] = NOT_READ
    rows_remapped_uncorrectable: Fact[int] = NOT_READ
    rows_remap_pending: Fact[bool] = NOT_READ
    rows_remap_failed: Fact[bool] = NOT_READ
    repair_pending: Fact[bool] = NOT_READ
    recovery_action: Fact[int] = NOT_READ
    link: Link = field(default_factory=Link)
    nvlink_active: Fact[int] = NOT_READ
    nvlink_total: Fact[int] = NOT_READ
    nvlink_ends: Fact[tuple[str, ...]] = NOT_READ
    nvlink_errors: Fact[int] = NOT_READ
    nvlink_errors_added: Fact[int] = NOT_READ
    fabric_state: Fact[str] = NOT_READ
    fabric_status: Fact[int] = NOT_READ
    fabric_health: Fact[tuple[str, ...]] = NOT_READ
    gsp_firmware: Fact[str] = NOT_READ
    vbios: Fact[str] = NOT_READ
    virtualization: Fact[str] = NOT_READ
    licensed: Fact[bool] = NOT_READ
    display_attached: Fact[bool] = NOT_READ
    numa_node: Fact[int] = NOT_READ
    lost: Fact[bool] = NOT_READ
    nvml_code: Fact[int] = NOT_READ
    nvml_question: Fact[str] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCheck:
    """A tiny kernel tried on one device by torch: it ran, how it failed, or why it was not tried."""

    device: int
    ran: bool
    error: str = ""
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """The torch of the examined Python, asked in a child process, or read from its files with --quick."""

    version: Fact[str] = NOT_READ
    accelerator: Fact[str] = NOT_READ
    cuda_version: Fact[tuple[int, int]] = NOT_READ
    hip_version: Fact[str] = NOT_READ
    cudnn_version: Fact[str] = NOT_READ
    arch_list: Fact[tuple[str, ...]] = NOT_READ
    import_error: Fact[str] = NOT_READ
    is_available: Fact[bool] = NOT_READ
    device_count: Fact[int] = NOT_READ
    warning: Fact[str] = NOT_READ
    mps_built: Fact[bool] = NOT_READ
    kernel_checks: Fact[tuple[KernelCheck, ...]] = NOT_READ
    loaded_libraries: Fact[tuple[str, ...]] = NOT_READ
    location: Fact[str] = NOT_READ
    num_threads: Fact[int] = NOT_READ
    precision: Fact[str] = NOT_READ
    mps_available: Fact[bool] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One installed distribution; `location` is its folder, `requires` its exact pins where they were read."""

    name: str
    version: str
    location: str = ""
    channel: str = "pip"
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFacts:
    """The Python that is examined, and how it is managed: 'uv', 'conda', 'venv', 'system', 'notebook'."""

    version: Fact[str] = NOT_READ
    executable: Fact[str] = NOT_READ
    manager: Fact[str] = NOT_READ
    prefix: Fact[str] = NOT_READ
    packages: Fact[tuple[Package, ...]] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The computer around the GPU; sizes in bytes, counts after affinity and cgroup where the name says usable."""

    system: Fact[str] = NOT_READ
    kernel: Fact[str] = NOT_READ
    kernel_command_line: Fact[str] = NOT_READ
    distribution: Fact[str] = NOT_READ
    architecture: Fact[str] = NOT_READ
    libc_version: Fact[str] = NOT_READ
    wsl: Fact[bool] = NOT_READ
    wsl_distributions: Fact[tuple[str, ...]] = NOT_READ
    jetson: Fact[bool] = NOT_READ
    secure_boot: Fact[bool] = NOT_READ
    cpu_model: Fact[str] = NOT_READ
    cpu_flags: Fact[tuple[str, ...]] = NOT_READ
    cpu_count: Fact[int] = NOT_READ
    cpu_cores_physical: Fact[int] = NOT_READ
    cpus_usable: Fact[float] = NOT_READ
    cpu_governor: Fact[str] = NOT_READ
    last_level_cache_bytes: Fact[int] = NOT_READ
    numa_nodes: Fact[int] = NOT_READ
    numa_nodes_usable: Fact[tuple[int, ...]] = NOT_READ
    memory_total_bytes: Fact[int] = NOT_READ
    memory_available_bytes: Fact[int] = NOT_READ
    swap_total_bytes: Fact[int] = NOT_READ
    transparent_hugepages: Fact[str] = NOT_READ
    shm_total_bytes: Fact[int] = NOT_READ
    shm_free_bytes: Fact[int] = NOT_READ
    disk_free_bytes: Fact[int] = NOT_READ
    tmp_free_bytes: Fact[int] = NOT_READ
    open_files_limit: Fact[int] = NOT_READ
    locked_memory_limit_bytes: Fact[int] = NOT_READ
    processes_limit: Fact[int] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Container, cgroup and scheduler around this process; `kind` is 'none' outside any container."""

    kind: Fact[str] = NOT_READ
    cgroup_version: Fact[int] = NOT_READ
    cpu_quota_cores: Fact[float] = NOT_READ
    memory_limit_bytes: Fact[int] = NOT_READ
    memory_used_bytes: Fact[int] = NOT_READ
    scheduler: Fact[str] = NOT_READ
    gpus_asked: Fact[str] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """One line of the kernel log that matters: kind is 'xid', 'sxid', 'aer', 'oom_kill', 'nvrm', 'resume', 'gsp',
    'bar', 'kind' (of module), 'fallen_off_bus', 'api_mismatch', 'module_rejected' or 'module_loaded'."""

    kind: str
    text: str
    code: Fact[int] = NOT_READ
    pci_address: Fact[str] = NOT_READ
    time_s: Fact[float] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTest:
    """What another tool ('dcgmi diag', 'fabric manager') said of a GPU or of the node, and the line it stands in.

    `result` is 'pass', 'warn', 'fail' or 'skip'; `gpu` is absent if the tool does not name one.
    """

    tool: str
    name: str
    result: str
    gpu: Fact[int] = NOT_READ
    message: str = ""
    origin: str = ""

    @property
    def said(self) -> str:
        """'GPU 3: memory failed: what the tool added', as one line."""
        verdict = {"fail": "failed", "warn": "warns", "pass": "passed", "skip": "was skipped"}[self.result]
        gpu = "" if isinstance(self.gpu, Absent) else f"GPU {self.gpu}: "
        return f"{gpu}{self.name} {verdict}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything known of one machine at one moment."""

    pci: Fact[tuple[PciDevice, ...]] = NOT_READ
    nodes: Fact[tuple[DeviceNode, ...]] = NOT_READ
    driver: Driver = field(default_factory=Driver)
    gpus: Fact[tuple[Gpu, ...]] = NOT_READ
    amd_gpus: Fact[tuple[Gpu, ...]] = NOT_READ
    torch: TorchBuild = field(default_factory=TorchBuild)
    python: PythonFacts = field(default_factory=PythonFacts)
    host: Host = field(default_factory=Host)
    container: Container = field(default_factory=Container)
    environment: Fact[Mapping[str, str]] = NOT_READ
    kernel_log: Fact[tuple[KernelEvent, ...]] = NOT_READ
    tests: Fact[tuple[DeviceTest, ...]] = NOT_READ
    probe_seconds: Mapping[str, float] = field(default_factory=dict)
    probe_failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_windows_driver(self) -> bool:
        """Whether this is the Windows driver, whose versions differ from Linux's; WSL uses it too."""
        return known(self.host.wsl) is True or (known(self.host.system) or "").lower() == "windows"

    @property
    def shown_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the output describes: NVIDIA's, or AMD's if there are no NVIDIA GPUs."""
        return known(self.gpus) or known(self.amd_gpus) or ()


def known(fact: Fact[T]) -> T | None:
    """The fact's value, or None if it is absent; for callers that do not need the reason."""
    return None if isinstance(fact, Absent) else fact


def known_or(fact: Fact[T], otherwise: T) -> T:
    """The fact's value, or `otherwise` when it is absent."""
    return otherwise if isinstance(fact, Absent) else fact


def fact_at(facts: object, path: str) -> object:
    """The fact at a dotted path ('driver.nvml_code', 'environment.LD_PRELOAD'), or the Absent on the way to it."""
    for part in path.split("."):
        if isinstance(facts, Absent):
            break
        facts = facts.get(part, NOT_READ) if isinstance(facts, Mapping) else getattr(facts, part)
    return facts
