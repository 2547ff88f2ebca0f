"""The fault matrix: machines with one thing broken and the cause that must come first, and machines that are well."""

# ruff: noqa: E501  the matrix is read as a table, one scenario a row

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpudoc.doctor.model import Expectation, Severity
from gpudoc.facts.collection import Deadlines
from tests.fakes.machine import (
    A10G,
    A30,
    A100,
    A100_SXM,
    B200,
    FABRIC_IS_WELL,
    GB200,
    GIB,
    GTX1080,
    H100,
    H200,
    L4,
    L40S,
    MUST_ANSWER,
    QUESTIONS,
    RTX3090,
    RTX4090,
    RTX5090,
    RTX6000,
    T4,
    V100,
    FakeMachine,
    Model,
)

Build = Callable[[FakeMachine], None]
SHORT = Deadlines(torch_s=4.0, driver_s=3.0, files_s=3.0)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One machine, and the finding that must stand first; healthy ones have nothing above info.

    `skips` are all checks that may be left out on it, and those alone; None leaves that open.
    """

    name: str
    build: Build
    cause: str = ""
    severity: Severity = "broken"
    expectation: Expectation = field(default_factory=Expectation)
    deadlines: Deadlines | None = None
    skips: frozenset[str] | None = None


def well(m: FakeMachine, model: Model = H100, count: int = 1) -> None:
    """Driver, GPUs and a torch that fits."""
    m.driver()
    m.gpus(model, count)
    m.torch()


def container(m: FakeMachine, kind: str = "docker") -> None:
    m.file(".dockerenv" if kind == "docker" else "run/.containerenv")
    m.environment |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def no_driver(m: FakeMachine, *, bound: str | None = None, model: Model = RTX4090) -> None:
    """GPUs on the bus, no NVIDIA module and no device files, a CUDA build of torch that sees nothing."""
    m.pci(m.address(0), 0x10DE, model.device_id, model.class_code, bound)
    m.torch(available=False, warning="CUDA initialization: Found no NVIDIA driver on your system.")


def after(base: Build, *steps: Build) -> Build:
    """`base`, then each step."""

    def build(m: FakeMachine) -> None:
        for step in (base, *steps):
            step(m)

    return build


def cu_init(code: int) -> Build:
    def build(m: FakeMachine) -> None:
        m.error("cuInit", code)
        m.torch(available=False)

    return build


def nvml_init(code: int) -> Build:
    def build(m: FakeMachine) -> None:
        m.error("nvmlInit", code)
        m.error("cuInit", 999 if code == 999 else 100)
        m.torch(available=False)

    return build


def sick_everywhere(code: int, gpu: int) -> Build:
    """A GPU whose handle works and that answers everything else with `code`."""

    def build(m: FakeMachine) -> None:
        for question in QUESTIONS[1:]:
            m.error(question, code, gpu)

    return build


def listed(count: int) -> Build:
    """NVML and CUDA list the first `count` GPUs of the bus."""

    def build(m: FakeMachine) -> None:
        m.answer("nvmlDeviceGetCount", count)
        m.answer("cuDeviceGetCount", count)

    return build


def gpu_answer(function: str, value: object, gpu: int = 0) -> Build:
    return lambda m: m.answer(function, value, gpu)


def two_nodes(allowed: str) -> Build:
    def build(m: FakeMachine) -> None:
        m.file("sys/devices/system/node/node0/cpulist", "0-15\n")
        m.file("sys/devices/system/node/node1/cpulist", "16-31\n")
        m.file("proc/self/status", f"Name:\tpython\nCpus_allowed_list:\t{allowed}\n")

    return build


def log(*lines: str) -> Build:
    return lambda m: m.kernel_log(*lines)


def environment(**variables: str) -> Build:
    return lambda m: m.environment.update(variables)


def wsl(m: FakeMachine) -> None:
    m.file("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    m.remove("sys/bus/pci/devices")
    m.file("sys/bus/pci/devices/.keep")


def wsl_well(m: FakeMachine) -> None:
    wsl(m)
    m.libraries = {"nvml": True, "cuda": True}
    m.answer("nvmlSystemGetDriverVersion", "580.88")
    m.answer("nvmlSystemGetCudaDriverVersion", 13000)
    m.answer("cuDriverGetVersion", 13000)
    m.file("dev/dxg")
    m.gpus(RTX4090, bus=False)
    m.library_folder = "wsl"
    m.torch()


def jetson(m: FakeMachine) -> None:
    m.file("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit")
    m.libraries = {"nvml": False, "cuda": True}
    m.answer("cuDriverGetVersion", 12060)
    m.answer("cuDeviceGetCount", 1)
    m.answer("cuDeviceGetName", "Orin", 0)


def amd(m: FakeMachine, driver: str | None = "amdgpu") -> None:
    m.pci("0000:83:00.0", 0x1002, 0x74A1, 0x120000, driver)
    m.modules("amdgpu") if driver == "amdgpu" else None
    if driver == "amdgpu":
        m.file("dev/kfd")
        m.file("dev/dri/renderD128")
    m.torch("2.9.0+rocm6.4", None, hip="6.4.43482", archs=("gfx90a", "gfx942"), available=True)


def refuse_open(code: int, *names: str) -> Build:
    def build(m: FakeMachine) -> None:
        for name in names:
            m.error(f"open:{name}", code)
        m.error("nvmlInit", 4 if code == 13 else 999)
        m.error("cuInit", 100)
        m.torch(available=False)

    return build


def pins(m: FakeMachine) -> None:
    """A torch with the pins of a wheel and all of them met."""
    wanted = {"nvidia-cublas": "13.0.2.14", "nvidia-cudnn-cu13": "9.15.1.9", "triton": "3.6.0"}
    m.package(
        "torch", "2.13.0+cu130", *(f'{name}=={version}; platform_system == "Linux"' for name, version in wanted.items())
    )
    for name, version in wanted.items():
        m.package(name, version)


def busy(m: FakeMachine) -> None:
    m.file("proc/4242/comm", "python\n")
    m.answer("nvmlDeviceGetMemoryInfo", f"{80 * GIB} {70 * GIB}", 0)
    m.answer("nvmlDeviceGetComputeRunningProcesses", f"4242:{70 * GIB}", 0)


def second_site(m: FakeMachine) -> None:
    other = m.folder / "site-user"
    other.mkdir()
    m.package("torch", "2.4.0", site=other)


def no_uvm(m: FakeMachine) -> None:
    m.remove("dev/nvidia-uvm")
    m.modules("nvidia_drm", "nvidia_modeset", "nvidia")
    cu_init(999)(m)


def without(*names: str) -> Build:
    def build(m: FakeMachine) -> None:
        for name in names:
            m.remove(name)

    return build


def no_libraries(m: FakeMachine) -> None:
    m.libraries = {"nvml": False, "cuda": False}
    m.torch(available=False)


def container_without_access(m: FakeMachine) -> None:
    m.pci(m.address(0), 0x10DE, H100.device_id, H100.class_code, "nvidia")
    m.modules("nvidia_uvm", "nvidia")
    m.file(".dockerenv")
    m.torch(available=False)


def secure_boot(m: FakeMachine) -> None:
    (m.root / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\0\0\0\1")
    m.file("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.120")


def old_driver(m: FakeMachine) -> None:
    m.driver("470.57.02", (11, 4))
    m.gpus(A100)
    m.torch("2.6.0+cu124", "12.4", available=False)


def compat_library(m: FakeMachine) -> None:
    m.driver("470.57.02", (11, 4))
    m.gpus(A100)
    m.answer("cuDriverGetVersion", 12040)
    m.torch("2.6.0+cu124", "12.4")


def old_cards(m: FakeMachine, model: Model = GTX1080, **said: object) -> None:
    m.driver("580.65.06", (13, 0), open_module=False)
    m.gpus(model)
    m.torch("2.9.0+cu130", "13.0", archs=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"), **said)


def new_card(m: FakeMachine, **said: object) -> None:
    m.driver()
    m.gpus(RTX5090)
    m.torch("2.6.0+cu124", "12.4", archs=("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"), **said)


def mig(instances: int, gpu: int | str = "*") -> Build:
    def build(m: FakeMachine) -> None:
        m.answer("nvmlDeviceGetMigMode", "1 1", gpu)
        m.answer("nvmlDeviceGetMaxMigDeviceCount", 7, gpu)
        m.answer("mig_instances", instances, gpu)

    return build


def hang(function: str) -> Build:
    def build(m: FakeMachine) -> None:
        m.hang(function)
        m.torch(available=False, available_delay=600 if function == "cuInit" else 0)

    return build


def silent(function: str) -> Build:
    def build(m: FakeMachine) -> None:
        m.be_silent(function)
        m.torch(available=False)

    return build


def cpu_only(m: FakeMachine) -> None:
    m.torch("2.13.0+cpu", None)


def quota(cores: int, threads: int) -> Build:
    def build(m: FakeMachine) -> None:
        m.file("sys/fs/cgroup/cpu.max", f"{cores * 100000} 100000\n")
        m.file("proc/self/cgroup", "0::/\n")
        m.torch(threads=threads)

    return build


def sandbox(m: FakeMachine) -> None:
    """A container runtime that shows neither bus nor modules, and passes the device files."""
    container(m)
    m.remove("sys/bus")
    m.remove("proc/modules")
    m.remove("proc/driver")
    m.remove("sys/module")


XID = "[ 900.5] NVRM: Xid (PCI:0000:17:00): {}, pid=1234, name=python, Ch 00000008"
FAULTS: tuple[Scenario, ...] = (
    # the bus
    Scenario(name="GPU asked for, none on the bus", build=lambda m: m.torch(available=False), cause="no_gpu_on_machine",
             expectation=Expectation(num_gpus=1)),
    Scenario(name="SLURM promised a GPU, none there", build=environment(SLURM_JOB_ID="7", SLURM_GPUS_ON_NODE="1"),
             cause="no_gpu_on_machine"),
    Scenario(name="image asks for GPUs, none there", build=environment(NVIDIA_VISIBLE_DEVICES="all"),
             cause="no_gpu_on_machine", severity="warning"),
    Scenario(name="config space reads as all ones", cause="gpu_fallen_off_bus",
             build=after(well, lambda m: (m.root / "sys/bus/pci/devices/0000:17:00.0/config").write_bytes(b"\xff" * 4),
                         nvml_init(999))),
    Scenario(name="NVML says one of four is lost", build=after(lambda m: well(m, H100, 4), lambda m:
             m.error("nvmlDeviceGetHandleByIndex", 15, 2)), cause="gpu_fallen_off_bus"),
    Scenario(name="one of four is lost, its handle is not", build=after(lambda m: well(m, H100, 4), sick_everywhere(15, 2)),
             cause="gpu_fallen_off_bus"),
    *(Scenario(name=f"one of four answers {code} to {question}", cause="gpu_not_answering",
               build=after(lambda m: well(m, H100, 4), lambda m, q=question, c=code: m.error(q, c, 3)))
      for question, code in (("nvmlDeviceGetHandleByIndex", 999), ("nvmlDeviceGetHandleByIndex", 20),
                             ("nvmlDeviceGetName", 10), ("nvmlDeviceGetMemoryInfo", 999))),
    Scenario(name="one of four needs a reset, its handle does not say so", cause="gpu_needs_reset",
             build=after(lambda m: well(m, H100, 4), lambda m: m.error("nvmlDeviceGetTemperature.0", 16, 1))),
    Scenario(name="Xid 79 and a GPU missing from NVML", cause="gpu_fallen_off_bus",
             build=after(lambda m: well(m, A100, 2), lambda m: m.answer("nvmlDeviceGetCount", 1),
                         log(XID.format(79).replace("17:00", "27:00") + ", GPU has fallen off the bus."))),
    # the kernel driver
    Scenario(name="nouveau holds the card", build=after(lambda m: no_driver(m, bound="nouveau"), lambda m:
             m.modules("nouveau")), cause="nouveau_loaded"),
    Scenario(name="vfio-pci holds the card", build=after(lambda m: no_driver(m, bound="vfio-pci"), lambda m:
             m.modules("vfio_pci")), cause="gpu_bound_to_vfio"),
    Scenario(name="no driver at all", build=no_driver, cause="driver_missing_or_not_loaded"),
    Scenario(name="driver package there, module not loaded", cause="driver_missing_or_not_loaded",
             build=after(no_driver, lambda m: m.file("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.120"))),
    Scenario(name="Secure Boot rejected the module", cause="secure_boot_blocks_module",
             build=after(no_driver, secure_boot, log("[ 5.1] Loading of unsigned module is rejected"))),
    Scenario(name="Secure Boot, driver installed, log silent", cause="secure_boot_blocks_module",
             build=after(no_driver, secure_boot)),
    Scenario(name="open module loaded, GPU without GSP", cause="kernel_module_kind_wrong",
             build=after(lambda m: no_driver(m, model=GTX1080), lambda m: m.modules("nvidia"), log(
                 "[ 6.0] NVRM: The NVIDIA GPU 0000:17:00.0 (PCI ID: 10de:1b06) is not supported by open nvidia.ko"))),
    Scenario(name="module loaded, GPU too old for it", cause="driver_does_not_support_gpu",
             build=after(lambda m: no_driver(m, model=GTX1080), lambda m: m.modules("nvidia"), log(
                 "[ 6.0] NVRM: The NVIDIA GPU 0000:17:00.0 is supported through the NVIDIA 470.xx Legacy drivers."))),
    Scenario(name="module loaded, the BIOS gave no BAR", cause="gpu_bar_not_assigned",
             build=after(no_driver, lambda m: m.modules("nvidia"), log(
                 "[ 9.0] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:17:00.0)",
                 "[ 9.1] NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x24:0x65:1589)"))),
    Scenario(name="module loaded, GSP firmware timed out", cause="gsp_firmware_timeout",
             build=after(no_driver, lambda m: m.modules("nvidia"), log(
                 "[ 9.0] NVRM: _kgspIsHeartbeatTimedOut: GSP heartbeat timeout, GSP failed to boot"))),
    Scenario(name="module loaded, adapter did not initialise", cause="gpu_hardware_fault",
             build=after(no_driver, lambda m: m.modules("nvidia"), log(
                 "[ 9.0] NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x24:0x65:1589)"))),
    # device files
    Scenario(name="no device files on a host", cause="device_nodes_missing",
             build=after(well, without("dev/nvidia0", "dev/nvidiactl"), nvml_init(9))),
    Scenario(name="container without the GPU's devices", build=container_without_access,
             cause="container_without_gpu_access"),
    Scenario(name="container with libraries, without devices", cause="container_without_gpu_access",
             build=after(well, container, without("dev/nvidia0", "dev/nvidiactl"), nvml_init(9))),
    Scenario(name="container lost its devices (EPERM)", cause="container_lost_gpu_cgroup",
             build=after(well, container, refuse_open(1, "/dev/nvidia0", "/dev/nvidiactl"))),
    Scenario(name="user may not open the devices (EACCES)", cause="device_permission_denied",
             build=after(well, refuse_open(13, "/dev/nvidia0", "/dev/nvidiactl"))),
    Scenario(name="user may not open nvidia-uvm", cause="device_permission_denied",
             build=after(well, lambda m: m.error("open:/dev/nvidia-uvm", 13), cu_init(304))),
    Scenario(name="device fails to open with EIO", cause="gpu_hardware_fault",
             build=after(well, lambda m: m.error("open:/dev/nvidia0", 5), nvml_init(999))),
    Scenario(name="nvidia-uvm missing", build=after(well, no_uvm), cause="nvidia_uvm_missing"),
    # NVML
    Scenario(name="libraries newer than the module", build=after(well, nvml_init(18), lambda m: (
             m.remove("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06"),
             m.file("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"))), cause="driver_library_mismatch"),
    Scenario(name="libraries missing on a host", build=after(well, no_libraries), cause="driver_missing_or_not_loaded"),
    Scenario(name="libraries not injected into a container", build=after(well, container, no_libraries),
             cause="container_without_gpu_access"),
    Scenario(name="NVML unknown error in a container", build=after(well, container, nvml_init(999)),
             cause="container_lost_gpu_cgroup"),
    Scenario(name="NVML unknown error on a host", build=after(well, nvml_init(999)), cause="driver_in_bad_state"),
    Scenario(name="NVML no permission", build=after(well, nvml_init(4)), cause="device_permission_denied"),
    Scenario(name="power cable missing", build=after(well, lambda m: m.error("nvmlDeviceGetHandleByIndex", 8, 0)),
             cause="gpu_power_missing"),
    Scenario(name="InfoROM corrupted", build=after(well, lambda m: m.error("nvmlDeviceGetHandleByIndex", 14, 0)),
             cause="gpu_hardware_fault"),
    Scenario(name="NVML says reset required", build=after(well, lambda m: m.error("nvmlDeviceGetHandleByIndex", 16, 0)),
             cause="gpu_needs_reset"),
    Scenario(name="NVML hangs at start", build=after(well, hang("nvmlInit")), cause="driver_not_answering",
             deadlines=SHORT),
    Scenario(name="NVML hangs at one GPU", build=after(lambda m: well(m, H100, 4), hang("nvmlDeviceGetHandleByIndex")),
             cause="driver_not_answering", deadlines=SHORT),
    Scenario(name="cuInit hangs", build=after(well, hang("cuInit")), cause="driver_not_answering", deadlines=SHORT),
    Scenario(name="NVML is silent, and nothing says that it hangs", build=after(well, silent("nvmlInit")),
             cause="driver_slow", severity="warning", deadlines=SHORT),
    Scenario(name="cuInit is silent, and nothing says that it hangs", build=after(well, silent("cuInit")),
             cause="driver_slow", severity="warning", deadlines=SHORT),
    Scenario(name="NVML is silent after an Xid", deadlines=SHORT, cause="driver_not_answering",
             build=after(well, silent("nvmlDeviceGetMemoryInfo"), lambda m: m.kernel_log(
                 "3,1,100,-;NVRM: Xid (PCI:0000:17:00): 119, pid=1, Timeout waiting for RPC from GSP!"))),
    Scenario(name="who asks the third GPU is killed", cause="driver_in_bad_state",
             build=after(lambda m: well(m, H100, 4), lambda m: m.kill("nvmlDeviceGetMemoryInfo", 2))),
    Scenario(name="NVML crashes who asks", build=after(well, lambda m: m.error("crash", 1)), cause="driver_in_bad_state"),
    Scenario(name="libraries and module differ, bus hidden by a sandbox", build=after(well, sandbox, nvml_init(18)),
             cause="driver_library_mismatch"),
    # what the environment hides
    Scenario(name="CUDA_VISIBLE_DEVICES names GPU 4 of 4", build=after(lambda m: well(m, H100, 4),
             environment(CUDA_VISIBLE_DEVICES="4"), cu_init(100)), cause="visible_devices_hides_gpu"),
    Scenario(name="CUDA_VISIBLE_DEVICES='cuda:0'", build=after(well, environment(CUDA_VISIBLE_DEVICES="cuda:0"),
             cu_init(100)), cause="visible_devices_hides_gpu"),
    Scenario(name="CUDA_VISIBLE_DEVICES with a UUID of another machine", cause="visible_devices_hides_gpu",
             build=after(well, environment(CUDA_VISIBLE_DEVICES="GPU-ffffffff"), cu_init(100))),
    Scenario(name="CUDA_VISIBLE_DEVICES names one GPU twice", build=after(lambda m: well(m, H100, 2),
             environment(CUDA_VISIBLE_DEVICES="0,0"), cu_init(100)), cause="visible_devices_hides_gpu"),
    Scenario(name="CUDA asked for and hidden", build=after(well, environment(CUDA_VISIBLE_DEVICES=""), cu_init(100)),
             cause="visible_devices_hides_gpu", expectation=Expectation(device="cuda")),
    Scenario(name="MIG on, no instance", build=after(well, mig(0), cu_init(100)), cause="mig_enabled_no_instance"),
    Scenario(name="MIG on without instance on one of two", build=after(lambda m: well(m, H100, 2), mig(0, 1)),
             cause="mig_enabled_no_instance", severity="warning"),
    Scenario(name="compute mode prohibited", build=after(well, gpu_answer("nvmlDeviceGetComputeMode", 2), cu_init(46)),
             cause="compute_mode_exclusive"),
    Scenario(name="exclusive mode and taken", build=after(well, busy, gpu_answer("nvmlDeviceGetComputeMode", 3),
             cu_init(46)), cause="compute_mode_exclusive"),
    # cuInit
    Scenario(name="fabric manager not running (802)", build=after(lambda m: well(m, H100, 8), lambda m: m.answer(
             "nvmlDeviceGetGpuFabricInfo", 2), cu_init(802)), cause="fabric_manager_not_running"),
    Scenario(name="another libcuda (803)", build=after(well, cu_init(803)), cause="libcuda_mismatch_803"),
    Scenario(name="cuda-compat on a GeForce (804)", build=after(lambda m: well(m, RTX4090), cu_init(804)),
             cause="forward_compat_on_consumer_gpu"),
    Scenario(name="MPS daemon away (805)", build=after(well, cu_init(805)), cause="mps_daemon_unreachable"),
    Scenario(name="MPS server not ready (807)", build=after(well, cu_init(807)), cause="mps_daemon_unreachable"),
    Scenario(name="unknown error after a suspend", build=after(lambda m: well(m, RTX4090), cu_init(999),
             log("[ 5000.1] PM: suspend exit")), cause="uvm_broken_after_suspend"),
    Scenario(name="unknown error without a suspend in the log", build=after(lambda m: well(m, RTX4090), cu_init(999)),
             cause="uvm_broken_after_suspend"),
    Scenario(name="stub libcuda first on the path", build=after(well, cu_init(34)), cause="libcuda_stub_loaded"),
    Scenario(name="ECC error at cuInit", build=after(well, cu_init(214)), cause="gpu_ecc_error"),
    Scenario(name="cuInit fails with an unheard-of code", build=after(well, cu_init(700)), cause="cuda_init_failed"),
    Scenario(name="libcuda missing beside NVML", build=after(well, lambda m: m.libraries.update(cuda=False), lambda m:
             m.torch(available=False)), cause="driver_missing_or_not_loaded"),
    Scenario(name="container with utility capability only", cause="container_without_libcuda",
             build=after(well, container, environment(NVIDIA_DRIVER_CAPABILITIES="utility"),
                         lambda m: m.libraries.update(cuda=False), lambda m: m.torch(available=False))),
    # torch's build
    Scenario(name="CPU build beside an H100", build=after(well, cpu_only), cause="cpu_only_torch"),
    Scenario(name="CPU build beside an AMD accelerator", build=after(amd, cpu_only), cause="cpu_only_torch"),
    Scenario(name="ROCm build beside an NVIDIA GPU", build=after(well, lambda m: m.torch(
             "2.9.0+rocm6.4", None, hip="6.4", archs=("gfx90a",), available=False)), cause="wrong_accelerator_build"),
    Scenario(name="CUDA build beside an AMD accelerator", build=after(amd, lambda m: m.torch(available=False)),
             cause="wrong_accelerator_build"),
    Scenario(name="driver 470 with CUDA 12.4", build=old_driver, cause="driver_too_old"),
    Scenario(name="driver 550 with CUDA 13.0", cause="driver_too_old", build=after(
             lambda m: m.driver("550.54.14", (12, 4)), lambda m: m.gpus(RTX4090), lambda m: m.torch(available=False))),
    Scenario(name="RTX 5090 with a wheel up to sm_90", build=lambda m: new_card(
             m, kernel_error="CUDA error: no kernel image is available for execution on the device"),
             cause="gpu_newer_than_wheel_archs"),
    Scenario(name="GTX 1080 Ti with a CUDA 13 wheel", build=lambda m: old_cards(
             m, kernel_error="CUDA error: no kernel image is available for execution on the device"),
             cause="gpu_older_than_wheel_archs"),
    Scenario(name="one old card beside a new one", build=after(well, lambda m: m.gpus(GTX1080), lambda m: m.torch(
             archs=("sm_75", "sm_80", "sm_90"))), cause="gpu_older_than_wheel_archs", severity="warning"),
    Scenario(name="generic wheel on a Jetson", build=after(jetson, cpu_only), cause="jetson_generic_wheel"),
    Scenario(name="CUDA wheel without Orin's code on a Jetson", build=after(jetson, lambda m: m.torch(
             archs=("sm_80", "sm_90"))), cause="jetson_generic_wheel"),
    Scenario(name="kernel fails though all looks right", build=after(well, lambda m: m.torch(
             kernel_error="CUDA error: an illegal instruction was encountered")), cause="gpu_kernel_fails"),
    Scenario(name="kernel computes nonsense", build=after(well, lambda m: m.torch(wrong_result=True)),
             cause="gpu_kernel_fails"),
    Scenario(name="torch import hangs", build=after(well, lambda m: m.torch(import_delay=600)), deadlines=SHORT,
             cause="torch_not_answering", severity="warning"),
    Scenario(name="torch import dies", build=after(well, lambda m: m.torch(import_signal=11)),
             cause="torch_import_crashes"),
    # packages
    Scenario(name="torchvision of another torch", build=after(well, pins, lambda m: m.package(
             "torchvision", "0.21.0+cu124", "torch (==2.6.0)")), cause="torchvision_torch_mismatch"),
    Scenario(name="CPU torchvision beside CUDA torch", build=after(well, lambda m: m.package(
             "torchvision", "0.28.0+cpu", "torch (==2.13.0)")), cause="torchvision_torch_mismatch"),
    Scenario(name="cuDNN of two CUDA generations", build=after(well, pins, lambda m: m.package(
             "nvidia-cudnn-cu12", "9.15.1.9")), cause="mixed_cuda_packages", severity="warning"),
    Scenario(name="cuDNN replaced", build=after(well, pins, lambda m: m.package("nvidia-cudnn-cu13", "9.10.2.21")),
             cause="cuda_library_version_differs", severity="warning"),
    Scenario(name="cuBLAS removed", build=after(well, pins, lambda m: m.forget("nvidia-cublas")),
             cause="bundled_cuda_library_missing", severity="warning"),
    Scenario(name="triton of another torch", build=after(well, pins, lambda m: m.package("triton", "3.2.0")),
             cause="triton_torch_mismatch", severity="warning"),
    Scenario(name="two torches on the path", build=after(well, second_site), cause="duplicate_packages",
             severity="warning"),
    Scenario(name="NumPy 2 beside torch 2.2", build=after(well, lambda m: m.torch("2.2.2+cu121", "12.1"), lambda m:
             m.package("numpy", "2.1.0")), cause="numpy2_abi", severity="warning"),
    # hardware
    Scenario(name="uncorrectable errors and a row waiting", cause="gpu_ecc_error", build=after(
             well, gpu_answer("nvmlDeviceGetTotalEccErrors.1.0", 2), gpu_answer("nvmlDeviceGetRemappedRows", "0 1 1 0"))),
    Scenario(name="uncorrectable errors, contained", build=after(well, gpu_answer("nvmlDeviceGetTotalEccErrors.1.0", 1)),
             cause="gpu_ecc_error", severity="warning"),
    Scenario(name="SRAM error threshold exceeded", build=after(well, gpu_answer("nvmlDeviceGetSramEccErrorStatus", 1)),
             cause="gpu_ecc_error"),
    Scenario(name="retired pages wait for a reset", build=after(lambda m: well(m, T4), gpu_answer(
             "nvmlDeviceGetRetiredPagesPendingStatus", 1)), cause="gpu_ecc_error", severity="warning"),
    Scenario(name="Xid 48 in the log", build=after(well, log(XID.format(48))), cause="gpu_ecc_error",
             severity="warning"),
    Scenario(name="row could not be replaced", build=after(well, gpu_answer("nvmlDeviceGetRemappedRows", "0 8 0 1")),
             cause="gpu_hardware_fault"),
    Scenario(name="Xid 62 in the log", build=after(well, log(XID.format(62))), cause="gpu_hardware_fault",
             severity="warning"),
    Scenario(name="recovery action: reset", build=after(well, gpu_answer("field.230", 1)), cause="gpu_needs_reset"),
    Scenario(name="recovery action: reboot", build=after(lambda m: well(m, H100, 8), gpu_answer("field.230", 2, 5)),
             cause="gpu_needs_reset"),
    Scenario(name="Xid 119 in the log", build=after(well, log(XID.format(119))), cause="gsp_firmware_timeout",
             severity="warning"),
    Scenario(name="the driver asks for a reboot", cause="gpu_needs_reset", build=after(well, log(
             XID.format(154) + ", GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"))),
    Scenario(name="fatal error of an NVSwitch", cause="nvswitch_error", build=after(lambda m: well(m, H100, 8), log(
             "[ 9.0] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"))),
    Scenario(name="Xid 79 in the log, GPU back", build=after(well, log(XID.format(79))), cause="gpu_fallen_off_bus",
             severity="warning"),
    Scenario(name="clocks cut by heat", cause="thermal_throttle", severity="warning", build=after(
             well, gpu_answer("nvmlDeviceGetCurrentClocksEventReasons", 0x60), gpu_answer("nvmlDeviceGetTemperature.0", 88))),
    Scenario(name="power brake", build=after(well, gpu_answer("nvmlDeviceGetCurrentClocksEventReasons", 0x88)),
             cause="power_brake", severity="warning"),
    Scenario(name="link x4 of x16", build=after(well, gpu_answer("nvmlDeviceGetCurrPcieLinkWidth", 4)),
             cause="pcie_link_degraded", severity="warning"),
    Scenario(name="PCIe replays that grow", cause="pcie_link_replays", severity="warning",
             build=after(well, gpu_answer("nvmlDeviceGetPcieReplayCounter", "900 3"))),
    Scenario(name="process bound to the other memory node", cause="process_far_from_gpu", severity="warning",
             build=after(well, two_nodes("16-31"))),
    Scenario(name="generation 1 under load", cause="pcie_link_degraded", severity="warning", build=after(
             well, gpu_answer("nvmlDeviceGetUtilizationRates", 99), gpu_answer("nvmlDeviceGetPerformanceState", 0))),
    Scenario(name="uncorrectable PCIe errors at the GPU", cause="pcie_bus_errors", severity="warning", build=after(
             well, log("[ 8.2] nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Data Link"))),
    Scenario(name="NVLinks of one GPU down", build=after(lambda m: well(m, H100, 8), gpu_answer(
             "nvmlDeviceGetNvLinkState", "12 18", 3)), cause="nvlink_error", severity="warning"),
    Scenario(name="virtual GPU without a licence", cause="vgpu_unlicensed", build=after(
             well, gpu_answer("nvmlDeviceGetVirtualizationMode", 2), gpu_answer("nvmlDeviceGetGridLicensableFeatures", 0))),
    Scenario(name="memory held by dead processes", cause="gpu_memory_orphaned", severity="warning", build=after(
             well, gpu_answer("nvmlDeviceGetComputeRunningProcesses", f"999999:{30 * GIB}"))),
    Scenario(name="eight held by the driver, NVML lists seven", cause="gpu_missing_from_driver",
             build=after(lambda m: well(m, H100, 8), listed(7))),
    Scenario(name="CUDA lists three of four", cause="cuda_lists_fewer_gpus", severity="warning",
             build=after(lambda m: well(m, A100, 4), lambda m: m.answer("cuDeviceGetCount", 3))),
    Scenario(name="the container was promised more", cause="fewer_gpus_than_expected", severity="warning",
             build=after(lambda m: well(m, A100, 3), container, environment(NVIDIA_VISIBLE_DEVICES="0,1,2,3"))),
    Scenario(name="all NVLinks down on all eight", cause="nvlink_error", severity="warning",
             build=after(lambda m: well(m, H100, 8), lambda m: m.answer("nvmlDeviceGetNvLinkState", "0 18"))),
    Scenario(name="one NVLink down on all eight", cause="nvlink_error", severity="warning",
             build=after(lambda m: well(m, A100_SXM, 8), lambda m: m.answer("nvmlDeviceGetNvLinkState", "11 12"))),
    Scenario(name="NVLink errors that grow", cause="nvlink_error", severity="warning",
             build=after(lambda m: well(m, H100, 8), gpu_answer("field.161", "900 3", 5))),
    Scenario(name="NVLink errors that grow on Blackwell", cause="nvlink_error", severity="warning",
             build=after(lambda m: well(m, B200, 8), gpu_answer("field.208", "900 3", 5))),
    *(Scenario(name=f"fabric: {what}", cause="nvlink_fabric_unhealthy", severity="warning",
               build=after(lambda m: well(m, H200, 8), gpu_answer("nvmlDeviceGetGpuFabricInfo", f"3 0 {mask}", 3)))
      for what, mask in (("route unhealthy", FABRIC_IS_WELL ^ 3 << 4), ("degraded bandwidth", FABRIC_IS_WELL ^ 3),
                         ("route recovery", FABRIC_IS_WELL ^ 3 << 2), ("access timeout", FABRIC_IS_WELL ^ 3 << 6),
                         ("no partition", FABRIC_IS_WELL ^ 3 << 12))),
    Scenario(name="fabric: registration failed", cause="nvlink_fabric_unhealthy", severity="warning",
             build=after(lambda m: well(m, H200, 8), gpu_answer("nvmlDeviceGetGpuFabricInfo", f"3 999 {FABRIC_IS_WELL}"))),
    Scenario(name="fabric: registration does not end", cause="nvlink_fabric_unhealthy", severity="warning",
             build=after(lambda m: well(m, H200, 8), gpu_answer("nvmlDeviceGetGpuFabricInfo", "2"))),
    Scenario(name="MIG change pending", build=after(lambda m: well(m, A100_SXM, 8), gpu_answer(
             "nvmlDeviceGetMigMode", "0 1", 6)), cause="gpu_mode_change_pending", severity="warning"),
    Scenario(name="ECC change pending", build=after(lambda m: well(m, L40S, 2), gpu_answer(
             "nvmlDeviceGetEccMode", "1 0", 1)), cause="gpu_mode_change_pending", severity="warning"),
    Scenario(name="power cap 150 of 400 W", build=after(lambda m: well(m, A100_SXM, 8), gpu_answer(
             "nvmlDeviceGetEnforcedPowerLimit", 150000, 4)), cause="power_limit_lowered", severity="warning"),
    Scenario(name="91 °C where it slows down at 87", build=after(lambda m: well(m, A100, 4), gpu_answer(
             "nvmlDeviceGetTemperature.0", 91, 2)), cause="thermal_throttle", severity="warning"),
    Scenario(name="no margin left, no flag", build=after(lambda m: well(m, H100, 8), gpu_answer(
             "nvmlDeviceGetMarginTemperature", 0, 7)), cause="thermal_throttle", severity="warning"),
    Scenario(name="an hour in the thermal counter", build=after(lambda m: well(m, A100, 4), gpu_answer(
             "field.269", 3600 * 10**9, 1)), cause="thermal_throttle", severity="warning"),
    Scenario(name="nine memory errors in the card's life", build=after(lambda m: well(m, A100, 4), gpu_answer(
             "nvmlDeviceGetTotalEccErrors.1.1", 9, 1)), cause="gpu_past_memory_errors", severity="info"),
    Scenario(name="76 GiB used, no process listed", build=after(lambda m: well(m, H100, 8), gpu_answer(
             "nvmlDeviceGetMemoryInfo", f"{80 * GIB} {76 * GIB}", 3)), cause="gpu_memory_orphaned", severity="warning"),
    Scenario(name="seven of eight GPUs", build=lambda m: well(m, H100, 7), cause="fewer_gpus_than_expected",
             expectation=Expectation(num_gpus=8)),
    # limits
    Scenario(name="64 MiB of /dev/shm", build=after(well, container, lambda m: m.answer("statvfs:/dev/shm", 64 << 20)),
             cause="shm_too_small", severity="warning"),
    Scenario(name="256 open files", build=after(well, lambda m: m.answer("getrlimit:7", 256)),
             cause="too_many_open_files", severity="warning"),
    Scenario(name="100 processes", build=after(well, lambda m: m.answer("getrlimit:6", 100)),
             cause="process_limit_low", severity="warning"),
    Scenario(name="quota of 4 CPUs, 32 threads", build=after(well, container, quota(4, 32)), cause="cgroup_cpu_limit",
             severity="warning"),
    Scenario(name="memory of the machine used up", cause="host_memory_low", severity="warning", build=after(
             well, lambda m: m.file("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 300000 kB\n"))),
    Scenario(name="memory of the cgroup used up", cause="host_memory_low", severity="warning", build=after(
             well, container, lambda m: (m.file("proc/self/cgroup", "0::/\n"),
                                         m.file("sys/fs/cgroup/memory.max", f"{8 * GIB}\n"),
                                         m.file("sys/fs/cgroup/memory.current", f"{8 * GIB - (200 << 20)}\n")))),
    Scenario(name="disk full", build=after(well, lambda m: m.answer("statvfs", 200 << 20)), cause="disk_full",
             severity="warning"),
    Scenario(name="opening a device hangs", build=after(well, lambda m: m.hang("open:/dev/nvidia0")), deadlines=SHORT,
             cause="system_files_not_answering", severity="warning"),
    # WSL, AMD
    Scenario(name="WSL without /dev/dxg", build=after(wsl, lambda m: m.torch(available=False)),
             cause="wsl_windows_or_kernel_too_old"),
    Scenario(name="Linux driver inside WSL", build=after(wsl_well, lambda m: setattr(m, "library_folder", "cuda"),
             cu_init(100)), cause="wsl_wrong_driver_inside"),
    Scenario(name="WSL without libcuda", build=after(wsl_well, lambda m: m.libraries.update(cuda=False), lambda m:
             m.torch(available=False)), cause="driver_missing_or_not_loaded"),
    Scenario(name="AMD accelerator without amdgpu", build=lambda m: amd(m, None), cause="driver_missing_or_not_loaded"),
    Scenario(name="AMD accelerator, /dev/kfd refused", build=after(amd, lambda m: m.error("open:/dev/kfd", 13)),
             cause="device_permission_denied"),
    Scenario(name="AMD accelerator, no /dev/kfd", build=after(amd, without("dev/kfd")), cause="device_nodes_missing"),
)  # fmt: skip


def many_processes(m: FakeMachine) -> None:
    """A training that uses GPU 0 of two at full power: software power cap, all clocks up, a CUDA process."""
    busy(m)
    m.answer("nvmlDeviceGetCurrentClocksEventReasons", 4, 0)
    m.answer("nvmlDeviceGetUtilizationRates", 100, 0)
    m.answer("nvmlDeviceGetPerformanceState", 0, 0)
    m.answer("nvmlDeviceGetCurrPcieLinkGeneration", 5, 0)
    m.answer("nvmlDeviceGetClockInfo.1", 1755, 0)


def laptop(m: FakeMachine) -> None:
    """An integrated GPU of the processor beside a discrete one, an old toolkit, a foreign cuDNN that nobody loads."""
    well(m, RTX4090)
    m.pci("0000:00:02.0", 0x8086, 0x46A6, 0x030000, "i915")
    m.file("usr/local/cuda/version.json", "{}")
    m.file("usr/lib/x86_64-linux-gnu/libcudnn.so.8")
    m.file("sys/bus/pci/devices/0000:17:00.0/numa_node", "-1\n")


def own_quota(m: FakeMachine) -> None:
    """A container with 8 of 32 CPUs and a program that knows it."""
    container(m)
    m.environment["OMP_NUM_THREADS"] = "8"
    quota(8, 8)(m)


def part_of_a_host(inside: int, count: int) -> Build:
    """A container on a host with `count` GPUs that was given the first `inside` of them."""

    def build(m: FakeMachine) -> None:
        well(m, H100, count)
        container(m)
        listed(inside)(m)
        for index in range(inside, count):
            m.remove(f"dev/nvidia{index}")
            m.remove(f"proc/driver/nvidia/gpus/{m.address(index)}")

    return build


def part_of_a_node(given: int, count: int) -> Build:
    """A job of a scheduler whose cgroup opens the first `given` GPUs of a host only."""

    def build(m: FakeMachine) -> None:
        well(m, A100_SXM, count)
        listed(given)(m)
        m.environment |= {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": str(given)}
        for index in range(given, count):
            m.error(f"open:/dev/nvidia{index}", 1)

    return build


def declines(code: int) -> Build:
    """Every GPU answers its handle, name, memory and address, and everything else with `code`."""

    def build(m: FakeMachine) -> None:
        for question in QUESTIONS:
            if question not in (*MUST_ANSWER, "nvmlDeviceGetPciInfo", "nvmlDeviceGetUUID"):
                m.error(question, code)

    return build


def beside(address: str, driver: str | None) -> Build:
    """One more NVIDIA GPU on the bus, held by another driver or by none."""
    return lambda m: m.pci(address, 0x10DE, T4.device_id, T4.class_code, driver)


# what a model has no counters for cannot be checked on it; everything else must be
_ALL: frozenset[str] = frozenset()
_NO_FABRIC = frozenset({"nvlink_fabric_unhealthy"})
_NO_NVLINK = _NO_FABRIC | {"nvlink_error"}
# before Ampere memory is mended page by page, and nothing says that it could not be
_PAGES = frozenset({"gpu_hardware_fault"})
# the system takes part of the GPU's memory, as it would of any other
_SYSTEM_MEMORY = frozenset({"gpu_memory_orphaned"})
_NO_ECC = frozenset({"gpu_ecc_error", "gpu_hardware_fault", "gpu_mode_change_pending", "gpu_past_memory_errors"})
MODELS: tuple[Scenario, ...] = tuple(
    Scenario(name=f"{count} x {model.name}", build=lambda m, model=model, count=count: well(m, model, count), skips=skips)
    for model, count, skips in (
        (H100, 8, _ALL), (H200, 8, _ALL), (B200, 8, _ALL), (GB200, 4, _SYSTEM_MEMORY),
        (A100_SXM, 8, _NO_FABRIC), (A100, 4, _NO_NVLINK), (A30, 2, _NO_FABRIC), (A10G, 4, _NO_NVLINK),
        (L4, 2, _NO_NVLINK), (L40S, 8, _NO_NVLINK), (T4, 4, _NO_NVLINK | _PAGES), (V100, 8, _NO_FABRIC | _PAGES),
        (RTX3090, 2, _NO_FABRIC | _NO_ECC), (RTX4090, 2, _NO_NVLINK | _NO_ECC), (RTX5090, 1, _NO_NVLINK | _NO_ECC),
        (RTX6000, 2, _NO_NVLINK),
    )
)  # fmt: skip

_DECLINED = _NO_NVLINK | _NO_ECC | {
    "gpu_kernel_fails", "gpu_memory_orphaned", "gpu_needs_reset", "gpu_newer_than_wheel_archs",
    "gpu_older_than_wheel_archs", "oom_other_process", "pcie_link_degraded", "pcie_link_replays", "power_brake",
    "power_limit_lowered", "vgpu_unlicensed",
}  # fmt: skip
HEALTHY: tuple[Scenario, ...] = (
    Scenario(name="one H100", build=well),
    Scenario(name="eight H100 with NVLink", build=lambda m: well(m, H100, 8)),
    Scenario(name="four A100 PCIe, packages as pinned", build=after(lambda m: well(m, A100, 4), pins)),
    Scenario(name="a T4", build=lambda m: well(m, T4)),
    Scenario(name="two RTX 4090", build=lambda m: well(m, RTX4090, 2)),
    Scenario(name="an RTX 5090 with a fitting wheel", build=lambda m: well(m, RTX5090)),
    Scenario(name="an old card with an old wheel", build=after(lambda m: m.driver("535.183.01", (12, 2)),
             lambda m: m.gpus(GTX1080), lambda m: m.torch("2.4.1+cu118", "11.8", archs=("sm_50", "sm_60", "sm_70")))),
    Scenario(name="driver older than torch's minor version", build=after(lambda m: m.driver("535.183.01", (12, 2)),
             lambda m: m.gpus(A100), lambda m: m.torch("2.8.0+cu128", "12.8"))),
    Scenario(name="cuda-compat on a datacentre GPU", build=compat_library),
    Scenario(name="a container with a GPU", build=after(well, container)),
    Scenario(name="a container with a CPU quota it knows", build=after(well, own_quota)),
    Scenario(name="a CPU container on a GPU host", build=after(container_without_access, cpu_only)),
    Scenario(name="WSL with a GPU", build=wsl_well),
    Scenario(name="a CPU machine with a CPU build", build=cpu_only),
    Scenario(name="a CPU machine with a CUDA build", build=lambda m: m.torch(available=False)),
    Scenario(name="a machine without torch", build=after(lambda m: m.driver(), lambda m: m.gpus(A100))),
    Scenario(name="GPUs hidden on purpose", build=after(well, environment(CUDA_VISIBLE_DEVICES=""), cu_init(100))),
    Scenario(name="one GPU of eight chosen", build=after(lambda m: well(m, H100, 8),
             environment(CUDA_VISIBLE_DEVICES="3"))),
    Scenario(name="a training running at full power", build=after(lambda m: well(m, H100, 2), many_processes)),
    Scenario(name="a laptop with two GPUs", build=laptop),
    Scenario(name="MIG with instances", build=after(well, mig(3))),
    Scenario(name="Xids of programs of earlier jobs", build=after(well, log(XID.format(13), XID.format(31),
             XID.format(43), XID.format(45)))),
    Scenario(name="corrected errors of ECC and PCIe", build=after(well, gpu_answer("nvmlDeviceGetTotalEccErrors.0.1", 900),
             log("[ 3.2] pcieport 0000:16:00.0: AER: Corrected error received",
                 "[ 3.2] nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"))),
    Scenario(name="an AMD accelerator with ROCm", build=amd),
    Scenario(name="a desktop with a Ryzen's graphics", build=after(lambda m: m.pci(
             "0000:0a:00.0", 0x1002, 0x164E, 0x030000, "amdgpu"), cpu_only)),
    Scenario(name="a power limit lowered on purpose", build=after(well, gpu_answer(
             "nvmlDeviceGetEnforcedPowerLimit", 400000))),
    Scenario(name="a job that was killed for memory yesterday", build=after(well, log(
             "[ 100.0] Out of memory: Killed process 4242 (python) total-vm:1kB"))),
    Scenario(name="a sandbox that hides the bus and passes the GPU", build=after(well, sandbox)),
    Scenario(name="a licensed virtual GPU", build=after(well, gpu_answer("nvmlDeviceGetVirtualizationMode", 2),
             gpu_answer("nvmlDeviceGetGridLicensableFeatures", 1))),
    Scenario(name="a GPU that answers what it must and declines the rest", build=after(lambda m: well(m, RTX4090), declines(3)), skips=_DECLINED),
    Scenario(name="WSL that declines most questions", build=after(wsl_well, declines(3)), skips=_DECLINED),
    Scenario(name="optional questions with an unknown error", build=after(lambda m: well(m, H100, 2), declines(999))),
    Scenario(name="a container with two of eight GPUs", build=part_of_a_host(2, 8)),
    Scenario(name="a job with two of eight GPUs", build=part_of_a_node(2, 8)),
    Scenario(name="one GPU passed to a virtual machine", build=after(lambda m: well(m, H100, 2), beside("0000:c1:00.0", "vfio-pci"))),
    Scenario(name="a card without driver beside", build=after(lambda m: well(m, H100, 2), beside("0000:c1:00.0", None))),
    *MODELS,
)  # fmt: skip
