"""Causes in the GPU itself, its modes, its link and the services it needs."""

from __future__ import annotations

from gpudoc.doctor.model import Cause
from gpudoc.doctor.remedies import always, do

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
_XID = "https://docs.nvidia.com/deploy/xid-errors/"
_ERRORS = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"

CAUSES: tuple[Cause, ...] = (
    Cause(
        id="fabric_manager_not_running",
        family="environment",
        title="The NVSwitch fabric is not ready (CUDA error 802)",
        meaning="NVSwitch/HGX machine without a running fabric manager (CUDA error 802)",
        why="On machines with NVSwitch CUDA waits for the fabric manager; nvidia-smi works without it and misleads.",
        fix=always(
            do("Start it.", "sudo systemctl enable --now nvidia-fabricmanager", root=True),
            do("Its version must be exactly the driver's.", "nv-fabricmanager --version; nvidia-smi | head -4"),
            do(
                "In a virtual machine or container this is the host's task: Fabric State must say Completed.",
                "nvidia-smi -q | grep -A3 Fabric",
            ),
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",),
        explains=("no_gpu_on_machine", "driver_missing_or_not_loaded", "uvm_broken_after_suspend"),
    ),
    Cause(
        id="gpu_ecc_error",
        family="environment",
        title="The GPU's memory has an uncorrectable error",
        meaning="uncorrectable memory error: GPU hardware",
        why="Data on the card are wrong; programs end, and results before that cannot be trusted.",
        fix=always(
            do(
                "What is counted, and does a reset mend it (rows are remapped at the next reset)?",
                "nvidia-smi -q -d ECC,ROW_REMAPPER",
            ),
            do("Reset when no program uses the card.", "sudo nvidia-smi --gpu-reset -i 0", root=True),
            do("If it comes back, or remapping failed: have the card replaced."),
        ),
        sources=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html", _XID),
        explains=("gpu_hardware_fault", "illegal_memory_access"),
    ),
    Cause(
        id="gpu_fallen_off_bus",
        family="environment",
        title="The GPU no longer answers on the PCIe bus",
        meaning="the GPU no longer answers on PCIe (Xid 79, device handle unknown error)",
        why="Power, heat, the slot or the card itself: until a restart the device is gone for every program.",
        fix=always(
            do("Switch the machine off and on (a warm restart may not be enough)."),
            do("Then look for the first fault before it.", "journalctl -k -b -1 | grep -i -e xid -e nvrm -e aer"),
            do(
                "If it comes back: reseat the card, check its power cables, riser and supply, update the board's "
                "firmware."
            ),
        ),
        sources=(_XID,),
        explains=(
            "driver_missing_or_not_loaded",
            "no_gpu_on_machine",
            "gpu_hardware_fault",
            "pcie_link_degraded",
            "container_lost_gpu_cgroup",
        ),
    ),
    Cause(
        id="gsp_firmware_timeout",
        family="environment",
        title="The GPU's system processor (GSP) stopped answering",
        meaning="GSP firmware does not answer the driver (Xid 119/120)",
        why="nvidia-smi and programs hang until the GPU is reset; some driver versions are known for it.",
        fix=always(
            do("Restart the machine, and update the driver."),
            do(
                "If it comes back: run without GSP (proprietary module, before Blackwell).",
                "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf",
                root=True,
            ),
        ),
        sources=("https://download.nvidia.com/XFree86/Linux-x86_64/535.54.03/README/gsp.html", _XID),
        explains=("gpu_fallen_off_bus", "gpu_hardware_fault", "driver_missing_or_not_loaded"),
    ),
    Cause(
        id="gpu_hardware_fault",
        family="runtime",
        title="The card, its slot, power or memory is faulty",
        meaning="defective card, slot, power or memory",
        why="Errors come and go with load and temperature and look like faults of the program.",
        fix=always(
            do("Does the kernel say more?", "sudo dmesg | grep -i -e xid -e nvrm -e aer", root=True),
            do("Does the same job run on another card or machine?", "CUDA_VISIBLE_DEVICES=1 python train.py"),
            do("A stress test of the card alone.", "dcgmi diag -r 3"),
            do(
                "Reseat the card, use separate power cables, lower the power limit, then have it replaced.",
                "sudo nvidia-smi -pl 250",
                root=True,
            ),
        ),
        sources=(_XID, "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html"),
        explains=("illegal_memory_access",),
    ),
    Cause(
        id="mps_daemon_unreachable",
        family="environment",
        title="CUDA MPS is configured, and its daemon cannot be reached",
        meaning="CUDA MPS is configured but its daemon cannot be reached (CUDA error 805)",
        why="With CUDA_MPS_PIPE_DIRECTORY set every program asks the MPS server first, and fails without it.",
        fix=always(
            do("Start the daemon.", "nvidia-cuda-mps-control -d"),
            do(
                "Or work without MPS: stop it, and unset its variables.",
                "echo quit | nvidia-cuda-mps-control; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY",
            ),
            do("In a container the pipe directory must be mounted and belong to the same user."),
        ),
        sources=("https://docs.nvidia.com/deploy/mps/index.html",),
        explains=("no_gpu_on_machine",),
    ),
    Cause(
        id="uvm_broken_after_suspend",
        family="environment",
        title="The nvidia_uvm module is unusable, as after suspend (CUDA unknown error)",
        meaning="nvidia_uvm is unusable after suspend or idle (CUDA error 999 / unknown error)",
        why="nvidia-smi still works, since it does not need that module; every CUDA program fails.",
        fix=always(
            do(
                "Reload the module (end CUDA programs before).",
                "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm",
                root=True,
            ),
            do(
                "For good: let the driver keep video memory over a suspend.",
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
            do("Is it there?", "ls -l /dev/nvidia-uvm && lsmod | grep nvidia_uvm"),
            do("In a container: pass it in.", "docker run --gpus all --device=/dev/nvidia-uvm ..."),
        ),
        sources=("https://github.com/NVIDIA/nvidia-modprobe", _TOOLKIT),
        explains=("uvm_broken_after_suspend", "no_gpu_on_machine", "container_without_gpu_access"),
    ),
    Cause(
        id="mig_enabled_no_instance",
        family="environment",
        title="MIG is on, and no instance exists to compute on",
        meaning="MIG mode is on but no (usable) MIG instance exists",
        why="With MIG on the whole card cannot be used any more, only instances of it.",
        fix=always(
            do("Make instances.", "sudo nvidia-smi mig -cgi 0 -C && nvidia-smi -L", root=True),
            do("Or switch MIG off.", "sudo nvidia-smi -i 0 -mig 0", root=True),
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html",),
        explains=("no_gpu_on_machine", "visible_devices_hides_gpu", "container_without_gpu_access"),
    ),
    Cause(
        id="vgpu_unlicensed",
        family="environment",
        title="The virtual GPU has no valid licence",
        meaning="virtual GPU without a valid licence",
        why="Without a licence the card is slowed down more and more, and CUDA may be refused.",
        fix=always(
            do("State of the licence:", "nvidia-smi -q | grep -i licen"),
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
        why="In exclusive mode one process owns the card; the next one finds all devices busy.",
        fix=always(
            do("Mode and owner:", "nvidia-smi -q -d COMPUTE; nvidia-smi --query-compute-apps=pid,name --format=csv"),
            do("Allow several processes.", "sudo nvidia-smi -c DEFAULT", root=True),
        ),
        sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-modes", _ERRORS),
        explains=("oom_other_process",),
    ),
    Cause(
        id="pcie_link_degraded",
        family="runtime",
        title="The PCIe link runs below what card and slot can do",
        meaning="link at a lower generation or width under load",
        why="Copies to and from the card, and between cards, take as much longer as the link is narrower.",
        fix=always(
            do(
                "Look under load, an idle link rests at generation 1.",
                "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link."
                "width.max --format=csv",
            ),
            do("Reseat the card, try another slot, replace the riser, set the slot's generation in the firmware."),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
    ),
    Cause(
        id="thermal_throttle",
        family="runtime",
        title="Clocks are cut by temperature",
        meaning="clocks cut by temperature",
        why="The card computes at a fraction of its speed while it shows 100 % utilisation.",
        fix=always(
            do("Temperature, clock and reason:", "nvidia-smi -q -d TEMPERATURE,CLOCK,PERFORMANCE"),
            do(
                "Clear the air flow, clean the fans; until then a lower power limit wastes less.",
                "sudo nvidia-smi -pl 250",
                root=True,
            ),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
        explains=("compute_bound",),
    ),
)
