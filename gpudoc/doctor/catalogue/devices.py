"""Causes in the GPU itself, its modes, its link and the services it needs."""

from __future__ import annotations

from gpudoc.doctor.cards import selector
from gpudoc.doctor.disruption import power_off, reboot, reload_modules, reset, then, users
from gpudoc.doctor.model import Cause, Remedy, Setting
from gpudoc.doctor.remedies import always, another_card, do, power_limits, smi

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
_XID = "https://docs.nvidia.com/deploy/xid-errors/"
_ERRORS = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_BLACKWELL = (10, 0)


def _without_gsp(setting: Setting) -> tuple[Remedy, ...]:
    """GSP switched off, only for the proprietary module and before Blackwell; everything else needs it."""
    if setting.open_module or (setting.capability is not None and setting.capability >= _BLACKWELL):
        return (do("Try another driver branch if it comes back; this GPU cannot run without GSP here."),)
    if setting.open_module is None or setting.capability is None:
        say = "See which module it is: only the proprietary one, before Blackwell, can switch GSP off"
        return (do(f"{say} (NVreg_EnableGpuFirmware).", "cat /proc/driver/nvidia/version; nvidia-smi -L"),)
    run = "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf"
    return (do("Run without GSP if it comes back, from the next load of the module on.", run, root=True),)


def _stress(setting: Setting) -> tuple[Remedy, ...]:
    indices = [str(card.index) for card in setting.cards if isinstance(card.index, int)]
    only = f" -i {','.join(indices)}" if indices and len(indices) == len(setting.cards) else ""
    return (users(setting), do("Run a stress test on the idle GPU.", f"dcgmi diag -r 3{only}"))


def _mig(setting: Setting) -> tuple[Remedy, ...]:
    which = selector(setting.cards)
    if not which:
        return (
            do("See which GPU has MIG on, and which instances it could have.", "nvidia-smi -L; nvidia-smi mig -lgip"),
            do("Make instances there (nvidia-smi mig -cgi ... -C) or switch MIG off (-mig 0), with its -i."),
        )
    return (
        do("Make one instance of the whole GPU.", f"sudo nvidia-smi mig{which} -cgi 0 -C && nvidia-smi -L", root=True),
        users(setting),
        do(
            "Switch MIG off instead, which resets the GPU.",
            f"sudo nvidia-smi{which} -mig 0",
            root=True,
            disruptive=True,
        ),
    )


def _several_processes(setting: Setting) -> tuple[Remedy, ...]:
    which = selector(setting.cards)
    if not which:
        return (do("Let that GPU take several processes: nvidia-smi -c DEFAULT with its -i."),)
    return (do("Allow several processes.", f"sudo nvidia-smi{which} -c DEFAULT", root=True),)


def _less_power(setting: Setting) -> tuple[Remedy, ...]:
    return power_limits(setting, "Lower the power limit until then, to waste less", share=0.8)


CAUSES: tuple[Cause, ...] = (
    Cause(
        id="fabric_manager_not_running",
        family="environment",
        title="The NVSwitch fabric is not ready (CUDA error 802)",
        meaning="NVSwitch/HGX machine without a running fabric manager (CUDA error 802)",
        why="On machines with NVSwitch CUDA waits for the fabric manager; nvidia-smi works without it and misleads.",
        fix=always(
            do("Start the fabric manager.", "sudo systemctl enable --now nvidia-fabricmanager", root=True),
            do("Check that its version is exactly the driver's.", "nv-fabricmanager --version; nvidia-smi | head -4"),
            do(
                "Do this on the host of a virtual machine or container: Fabric State must say Completed.",
                "nvidia-smi -q | grep -A3 Fabric",
            ),
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",),
        explains=(
            "no_gpu_on_machine",
            "driver_missing_or_not_loaded",
            "uvm_broken_after_suspend",
            "nvlink_fabric_unhealthy",
            "nvlink_error",
        ),
    ),
    Cause(
        id="gpu_ecc_error",
        family="environment",
        title="The GPU's memory has an uncorrectable error",
        meaning="uncorrectable memory error: GPU hardware",
        why="Data on the GPU are wrong; programs end, and results before that cannot be trusted.",
        fix=then(
            smi(
                "See what is counted, and whether rows are to be remapped at the next reset, which mends it.",
                "-q -d ECC,ROW_REMAPPER",
            ),
            reset,
            do("Have the card replaced if it comes back or remapping failed."),
        ),
        sources=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html", _XID),
        explains=(
            "gpu_hardware_fault",
            "illegal_memory_access",
            "gpu_needs_reset",
            "gpu_error_reported",
            "gpu_past_memory_errors",
        ),
    ),
    Cause(
        id="gpu_fallen_off_bus",
        family="environment",
        title="The GPU no longer answers on the PCIe bus",
        meaning="the GPU no longer answers on PCIe (Xid 79, device handle unknown error)",
        why="Power, heat, the slot or the GPU itself: until a restart the device is gone for every program.",
        fix=then(
            do("Look for the first fault before this one.", "journalctl -k | grep -i -e xid -e nvrm -e aer | head -40"),
            lambda setting: power_off(setting, "switch it on again (a warm restart may not be enough)"),
            do(
                "Reseat the card, check its power cables, riser and supply, and update the board's firmware if it "
                "comes back."
            ),
        ),
        sources=(_XID,),
        explains=(
            "driver_missing_or_not_loaded",
            "no_gpu_on_machine",
            "gpu_hardware_fault",
            "pcie_link_degraded",
            "container_lost_gpu_cgroup",
            "gpu_needs_reset",
            "gpu_error_reported",
            "gpu_missing_from_driver",
            "cuda_lists_fewer_gpus",
            "fewer_gpus_than_expected",
        ),
    ),
    Cause(
        id="gsp_firmware_timeout",
        family="environment",
        title="The GPU's system processor (GSP) stopped answering",
        meaning="GSP firmware does not answer the driver (Xid 119/120)",
        why="nvidia-smi and programs hang until the GPU is reset; some driver versions are known for it.",
        fix=then(
            do(
                "See which driver it is, and update it, as some versions are known for this.",
                "cat /proc/driver/nvidia/version",
            ),
            reset,
            lambda setting: reboot(setting, "if the reset is refused"),
            _without_gsp,
        ),
        sources=("https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/gsp.html", _XID),
        explains=(
            "gpu_fallen_off_bus",
            "gpu_hardware_fault",
            "driver_missing_or_not_loaded",
            "gpu_needs_reset",
            "gpu_error_reported",
        ),
    ),
    Cause(
        id="gpu_hardware_fault",
        family="runtime",
        title="The GPU, its slot, its power or its memory is faulty",
        meaning="defective GPU, slot, power or memory",
        why="Errors come and go with load and temperature and look like faults of the program.",
        fix=then(
            do("See whether the kernel says more.", "sudo dmesg | grep -i -e xid -e nvrm -e aer", root=True),
            another_card("See whether the same job runs on another GPU or machine"),
            _stress,
            lambda setting: power_off(
                setting, "reseat the card with separate power cables; have it replaced if the fault comes back"
            ),
        ),
        sources=(_XID, "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html"),
        explains=("illegal_memory_access", "gpu_needs_reset", "gpu_error_reported"),
    ),
    Cause(
        id="mps_daemon_unreachable",
        family="environment",
        title="CUDA MPS is configured, but its daemon cannot be reached",
        meaning="CUDA MPS is configured but its daemon cannot be reached (CUDA error 805)",
        why="With CUDA_MPS_PIPE_DIRECTORY set every program asks the MPS server first, and fails without it.",
        fix=always(
            do("Start the daemon.", "nvidia-cuda-mps-control -d"),
            do(
                "Stop MPS and unset its variables to work without it.",
                "echo quit | nvidia-cuda-mps-control; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY",
            ),
            do("Mount the pipe directory into a container, owned by the same user."),
        ),
        sources=("https://docs.nvidia.com/deploy/mps/index.html",),
        explains=("no_gpu_on_machine",),
    ),
    Cause(
        id="uvm_broken_after_suspend",
        family="environment",
        title="The nvidia_uvm module does not work, often after suspend (CUDA unknown error)",
        meaning="nvidia_uvm is unusable after suspend or idle (CUDA error 999 / unknown error)",
        why="nvidia-smi still works, since it does not need that module; every CUDA program fails.",
        fix=then(
            lambda setting: reload_modules(setting, "the module", "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm"),
            do(
                "Let the driver keep GPU memory over a suspend, to prevent this for good.",
                "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1' | sudo tee "
                "/etc/modprobe.d/nvidia-suspend.conf",
                root=True,
            ),
        ),
        sources=(
            "https://github.com/pytorch/pytorch/issues/49081",
            "https://download.nvidia.com/XFree86/Linux-x86_64/535.54.03/README/powermanagement.html",
        ),
        explains=("nvidia_uvm_missing", "no_gpu_on_machine", "container_without_gpu_access"),
    ),
    Cause(
        id="nvidia_uvm_missing",
        family="environment",
        title="/dev/nvidia-uvm or the nvidia_uvm module is missing",
        meaning="/dev/nvidia-uvm or the nvidia_uvm module is missing while nvidia-smi works",
        why="CUDA needs that device file beside /dev/nvidia0; nvidia-smi does not, and so misleads.",
        fix=always(
            do("Load the module and make its device file.", "sudo nvidia-modprobe -c 0 -u", root=True),
            do("Check that the device file is there.", "ls -l /dev/nvidia-uvm && lsmod | grep nvidia_uvm"),
            do("Pass the device file into a container.", "docker run --gpus all --device=/dev/nvidia-uvm ..."),
        ),
        sources=("https://github.com/NVIDIA/nvidia-modprobe", _TOOLKIT),
        explains=("uvm_broken_after_suspend", "no_gpu_on_machine", "container_without_gpu_access"),
    ),
    Cause(
        id="mig_enabled_no_instance",
        family="environment",
        title="MIG is on, but there is no instance to compute on",
        meaning="MIG mode is on but no (usable) MIG instance exists",
        why="With MIG on the whole GPU cannot be used any more, only instances of it.",
        fix=_mig,
        sources=("https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html",),
        explains=("no_gpu_on_machine", "visible_devices_hides_gpu", "container_without_gpu_access"),
    ),
    Cause(
        id="vgpu_unlicensed",
        family="environment",
        title="The virtual GPU has no valid licence",
        meaning="virtual GPU without a valid licence",
        why="Without a licence the GPU is slowed down more and more, and CUDA may be refused.",
        fix=always(
            do("See the state of the licence.", "nvidia-smi -q | grep -i licen"),
            do(
                "Put the client token in place and restart the service.",
                "sudo systemctl restart nvidia-gridd",
                root=True,
            ),
        ),
        sources=("https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/index.html",),
        explains=("no_gpu_on_machine",),
    ),
    Cause(
        id="compute_mode_exclusive",
        family="environment",
        title="The GPU is in exclusive or prohibited compute mode, or busy",
        meaning="GPU in exclusive/prohibited compute mode is already taken",
        why="In exclusive mode one process owns the GPU; the next one finds all devices busy.",
        fix=then(
            lambda setting: (
                do(
                    "See the mode and the owner.",
                    f"nvidia-smi{selector(setting.cards)} -q -d COMPUTE; "
                    f"nvidia-smi{selector(setting.cards)} --query-compute-apps=pid,name --format=csv",
                ),
            ),
            _several_processes,
        ),
        sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-modes", _ERRORS),
        explains=("oom_other_process",),
    ),
    Cause(
        id="pcie_link_degraded",
        severity="warning",
        family="runtime",
        title="The PCIe link runs slower than the GPU and the slot allow",
        meaning="link at a lower generation or width under load",
        why="Copies to and from the GPU, and between GPUs, take as much longer as the link is narrower.",
        fix=then(
            smi(
                "Look at the link under load, since an idle one rests at generation 1.",
                "--query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link."
                "width.max --format=csv",
            ),
            do("Reseat the card, try another slot, replace the riser, or set the slot's generation in the firmware."),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
    ),
    Cause(
        id="thermal_throttle",
        severity="warning",
        family="runtime",
        title="The GPU slows down because it is too hot",
        meaning="clocks cut by temperature",
        why="The GPU computes at a fraction of its speed while it shows 100 % utilisation.",
        fix=then(
            smi("See temperature, clocks and the reason.", "-q -d TEMPERATURE,CLOCK,PERFORMANCE"),
            do("Clear the air flow, clean the fans, and check the temperature of the room."),
            _less_power,
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
        explains=("compute_bound",),
    ),
)
