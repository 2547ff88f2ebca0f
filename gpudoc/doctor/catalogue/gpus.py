"""Causes that the driver's own counters and lists show of a GPU."""

from __future__ import annotations

from gpudoc.doctor.disruption import power_off, reset, then
from gpudoc.doctor.model import Cause
from gpudoc.doctor.remedies import always, by_place, do
from gpudoc.facts.model import Absent

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_KERNEL = do("See whether the kernel says why.", "sudo dmesg | grep -i -e xid -e nvrm", root=True)


CAUSES: tuple[Cause, ...] = (
    Cause(
        id="gpu_not_answering",
        family="environment",
        title="A GPU does not answer its driver",
        meaning="one GPU answers the driver's first questions with an error while the driver itself works",
        why="The driver lists the GPU and cannot talk to it: programs that reach it fail or hang.",
        fix=then(
            _KERNEL,
            reset,
            lambda setting: power_off(setting, "switch it on again; reseat or replace the card if it stays so"),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",),
        explains=("gpu_hardware_fault", "fewer_gpus_than_expected", "cuda_lists_fewer_gpus"),
    ),
    Cause(
        id="gpu_missing_from_driver",
        family="environment",
        title="NVML does not list a GPU that is on the bus",
        meaning="the nvidia driver holds a GPU or its likes, nothing keeps it from us, and NVML does not list it",
        why="The driver gave up on it while it started: to every program the machine has one GPU less.",
        fix=lambda setting: (
            _KERNEL,
            *(
                do("Check whether it is drained on purpose.", f"nvidia-smi drain -p {card.pci_address} -q")
                for card in setting.cards[:1]
                if not isinstance(card.pci_address, Absent)
            ),
            *power_off(
                setting, "switch it on again, unless the GPU is drained; reseat or replace the card if it stays away"
            ),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
        explains=("fewer_gpus_than_expected", "nvlink_error"),
    ),
    Cause(
        id="cuda_lists_fewer_gpus",
        family="environment",
        title="CUDA lists fewer GPUs than the driver",
        meaning="cuInit succeeds, and fewer devices are numbered than NVML lists and CUDA_VISIBLE_DEVICES lets through",
        why="Programs cannot reach the GPUs that are left out, though nvidia-smi shows them.",
        fix=always(
            do(
                "See which ones CUDA lists.",
                "nvidia-smi -L; python -c 'import torch; print(torch.cuda.device_count())'",
            ),
            _KERNEL,
        ),
        sources=("https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html",),
        explains=("fewer_gpus_than_expected",),
    ),
    Cause(
        id="gpu_past_memory_errors",
        family="environment",
        title="The GPU's memory had uncorrectable errors in the past",
        meaning="the GPU's own count of uncorrectable memory errors, kept over restarts, is not zero",
        why="The rows in question were replaced or will be; a GPU that goes on collecting them is wearing out.",
        fix=always(do("Note the count, and see later whether it has grown.", "nvidia-smi -q -d ECC,ROW_REMAPPER")),
        sources=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",),
    ),
    Cause(
        id="gpu_mode_change_pending",
        family="environment",
        title="A mode of the GPU will change at its next reset",
        meaning="the current and the pending MIG or ECC mode of a GPU differ",
        why="The change comes unasked with the next reset or restart: another memory size, or instances for devices.",
        fix=then(
            do(
                "See both modes, then set one back, or make the change now by a reset.",
                "nvidia-smi --query-gpu=index,ecc.mode.current,ecc.mode.pending,mig.mode.current,"
                "mig.mode.pending --format=csv",
            ),
            reset,
        ),
        sources=(_NVML, "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html"),
    ),
    Cause(
        id="nvlink_fabric_unhealthy",
        family="environment",
        title="The NVLink fabric reports a fault",
        meaning="the fabric's health of a GPU says degraded bandwidth, a bad route, a timeout or no partition",
        why="Collectives between these GPUs are slow, fail, or take the way over PCIe.",
        fix=always(
            do("See which part of it is at fault.", "nvidia-smi -q | grep -A 12 Fabric"),
            do("Read what the fabric manager says.", "sudo journalctl -u nvidia-fabricmanager -n 50", root=True),
            do("Let the machine take no new jobs, and have links and switches checked if a restart does not mend it."),
        ),
        sources=(
            "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
            "https://docs.nvidia.com/deploy/nvml-api/",
        ),
        explains=("nvlink_error",),
    ),
    Cause(
        id="container_without_libcuda",
        family="environment",
        title="The container has NVML, but not CUDA's library (libcuda)",
        meaning="NVML lists the GPUs in a container that has no libcuda: the capability `compute` was not asked for",
        why="NVIDIA_DRIVER_CAPABILITIES says which of the driver's libraries a container gets; compute brings libcuda.",
        fix=by_place(
            (
                do(
                    "Start the container with the capability compute.",
                    "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
                ),
                do("Put ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility into the image instead."),
            ),
            kubernetes=(do("Set it in the container's env: name NVIDIA_DRIVER_CAPABILITIES, value compute,utility."),),
        ),
        sources=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",),
        explains=("container_without_gpu_access", "driver_missing_or_not_loaded"),
    ),
)
