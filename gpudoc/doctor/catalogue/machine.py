"""Causes that only the facts of a machine show; those that text shows too stand beside their readers' rows."""

from __future__ import annotations

from gpudoc.doctor.cards import selector
from gpudoc.doctor.disruption import power_off, reboot, reload_modules, reset, then
from gpudoc.doctor.model import Cause, Remedy, Setting
from gpudoc.doctor.remedies import always, by_place, do, install, power_limits, smi
from gpudoc.doctor.xid_advice import advise_recovery
from gpudoc.facts.model import Absent

_NVML_DOC = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"
_CUDA_DOC = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
_KERNEL_DOC = "https://docs.kernel.org/driver-api/vfio.html"
_DRIVER_DOC = "https://github.com/NVIDIA/open-gpu-kernel-modules"
_ECC_DOC = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html"
_XID_DOC = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


_RELOAD = (
    "sudo systemctl stop nvidia-persistenced; sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia"
    " && sudo modprobe nvidia nvidia_uvm"
)


# NVML_GPU_RECOVERY_ACTION_* by the names that an Xid 154 uses
_RECOVERY = {2: "Node Reboot Required", 3: "Drain P2P", 5: "Recover IMEX Domain", 7: "System Reboot Required"}


def _refused_reset(setting: Setting) -> tuple[Remedy, ...]:
    return reboot(setting, "if the reset is refused")


def _recover(setting: Setting) -> tuple[Remedy, ...]:
    """What the driver asks for where it says so, a reboot before all, which a reset cannot replace; else a reset."""
    actions = [card.facts.recovery_action for card in setting.cards if not isinstance(card.facts, Absent)]
    asked = [_RECOVERY[action] for action in actions if isinstance(action, int) and action in _RECOVERY]
    steps = advise_recovery(min(asked, key=lambda name: "Reboot" not in name, default=""))(setting)
    return steps if any("Reboot" in name for name in asked) else (*steps, *_refused_reset(setting))


def _raise_power(setting: Setting) -> tuple[Remedy, ...]:
    return power_limits(setting, "Restore the GPU's default power limit, unless it was lowered on purpose", share=1.0)


def _reinstall_pinned(setting: Setting) -> tuple[Remedy, ...]:
    version = setting.torch_version.split("+")[0]
    what = f"--force-reinstall torch=={version}" if version else "--force-reinstall torch"
    return (do("Reinstall torch with the libraries that it pins.", install(setting, what)),)


CAUSES: tuple[Cause, ...] = (
    Cause(
        id="gpu_bound_to_vfio",
        family="environment",
        title="The GPU is reserved for a virtual machine (vfio-pci)",
        meaning="vfio-pci holds the GPU so that a virtual machine can have it; the host's driver cannot",
        why="A device has one kernel driver; while vfio-pci holds it, neither NVML nor CUDA on this host sees it.",
        fix=always(
            do(
                "Use the GPU inside the virtual machine, or take its id out of the vfio-pci options and reboot.",
                "grep -r vfio-pci /etc/modprobe.d /proc/cmdline",
            ),
        ),
        sources=(_KERNEL_DOC,),
    ),
    Cause(
        id="driver_does_not_support_gpu",
        family="environment",
        title="The loaded NVIDIA driver does not support this GPU",
        meaning="the module is loaded and leaves the GPU alone: the driver is too old or too new for it",
        why="A driver branch knows the GPUs of its time: new ones need a newer branch, old ones an older branch.",
        fix=always(
            do("Read what the driver said about the GPU.", "sudo dmesg | grep -i nvrm", root=True),
            do(
                "Install the branch that NVIDIA lists for this GPU (legacy GPUs have their own), with the open module "
                "from Blackwell on and the proprietary one before Turing."
            ),
        ),
        sources=(_DRIVER_DOC,),
    ),
    Cause(
        id="device_nodes_missing",
        family="environment",
        title="The GPU's device files are missing",
        meaning="the driver holds the GPU, but /dev has no file through which programs could reach it",
        why="NVML and CUDA open /dev/nvidiactl and /dev/nvidia0; without them the driver cannot be reached.",
        fix=by_place(
            (do("Let NVIDIA's helper make the device files.", "sudo nvidia-modprobe -c 0 -u", root=True),),
            docker=(do("Start the container with the GPU's devices.", "docker run --gpus all ..."),),
        ),
        sources=("https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",),
    ),
    Cause(
        id="driver_not_answering",
        family="environment",
        title="The GPU driver does not answer",
        meaning="a question to the driver did not return: the driver or the GPU hangs",
        why="A hanging driver stops every program that touches the GPU, and such programs cannot even be killed.",
        fix=then(
            do("Look for what the driver reported last.", "sudo dmesg | grep -i -e nvrm -e xid | tail", root=True),
            reboot,
            do("Power the machine off and on if it hangs again at once.", disruptive=True),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/",),
        explains=("torch_not_answering",),
    ),
    Cause(
        id="driver_in_bad_state",
        family="environment",
        title="The driver answers with an internal error",
        meaning="NVML answers with an error that says only that the driver's state is bad",
        why="Until its modules are loaded afresh, the driver refuses every program.",
        fix=then(
            lambda setting: reload_modules(setting, "the driver's modules", _RELOAD),
            lambda setting: reboot(setting, "if a program or the desktop holds the modules"),
        ),
        sources=(_NVML_DOC,),
    ),
    Cause(
        id="gpu_power_missing",
        family="environment",
        title="A GPU's power cable is not connected",
        meaning="the GPU reports that it gets too little power to start (NVML code 8)",
        why="The driver does not start a GPU whose auxiliary power is missing.",
        fix=lambda setting: power_off(setting, "connect all power plugs of the GPU firmly"),
        sources=(_NVML_DOC,),
    ),
    Cause(
        id="gpu_needs_reset",
        family="environment",
        title="A GPU needs a reset",
        meaning="after a fault the driver marks the GPU as unusable until it is reset or the machine reboots",
        why="Programs may fail or compute wrongly on a GPU in this state.",
        fix=_recover,
        sources=(_ECC_DOC,),
    ),
    Cause(
        id="libcuda_stub_loaded",
        family="environment",
        title="The CUDA toolkit's stub is loaded instead of the real libcuda",
        meaning="a libcuda that exists only for linking is found before the driver's own (CUDA error 34)",
        why="The stub has the names of the functions and none of their work.",
        fix=always(
            do(
                "Take the folder with 'stubs' in its name out of the library path.",
                "echo $LD_LIBRARY_PATH | tr : '\\n'",
            ),
        ),
        sources=(_CUDA_DOC,),
    ),
    Cause(
        id="cuda_init_failed",
        family="environment",
        title="CUDA does not start",
        meaning="cuInit fails with a code that no narrower cause explains",
        why="No program can use the GPU while cuInit fails.",
        fix=then(
            do("Look for what the driver reported.", "sudo dmesg | grep -i -e nvrm -e xid | tail", root=True),
            lambda setting: reboot(setting, "if it reported nothing"),
        ),
        sources=(_CUDA_DOC,),
    ),
    Cause(
        id="gpu_kernel_fails",
        family="environment",
        title="A tiny kernel fails on the GPU",
        meaning="driver and torch look right, and a sum of 64 numbers on the GPU fails or is wrong",
        why="Every training would fail in the same way, or silently compute nonsense.",
        fix=always(
            do("See whether the hardware reported something.", "sudo dmesg | grep -i xid | tail", root=True),
            do("Measure the GPU and check its results.", "gpudoc bench --quick"),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html",),
    ),
    Cause(
        id="torch_not_installed",
        family="environment",
        title="torch is not installed in the examined Python",
        meaning="the examined Python has no torch; perhaps another Python was meant",
        why="Everything up to the driver can be judged without torch, nothing after it.",
        fix=lambda setting: (
            do("Name the Python that you train with.", "gpudoc doctor --python /path/to/python"),
            do("Install torch here instead.", install(setting, "torch")),
        ),
        sources=("https://pytorch.org/get-started/locally/",),
    ),
    Cause(
        id="torch_hidden_from_build",
        family="environment",
        title="A package is built where the installed torch is not seen",
        meaning="pip builds a package apart from what is installed, and the package's build needs torch",
        why="The build stops at once, although torch is installed or listed beside the package.",
        fix=lambda setting: (
            do("Install torch first.", install(setting, "torch")),
            do("Build the package with what is installed.", install(setting, "--no-build-isolation PACKAGE")),
        ),
        sources=("https://pip.pypa.io/en/stable/reference/build-system/#build-isolation",),
    ),
    Cause(
        id="torch_not_answering",
        family="environment",
        title="torch takes too long to start",
        meaning="importing torch or its first look at the GPU did not end within the deadline",
        why="A cold network disk makes the first import slow; a hanging driver makes it endless.",
        fix=always(
            do("See where the import takes so long.", "python -X importtime -c 'import torch' 2>&1 | tail"),
            do("Run it again; the second import finds its files in memory.", "gpudoc doctor"),
        ),
        sources=("https://docs.python.org/3/using/cmdline.html#cmdoption-X",),
    ),
    Cause(
        id="power_brake",
        severity="warning",
        family="environment",
        title="The GPU slows down because its power supply falls short",
        meaning="the board or the system signals that power is short, and the GPU slows down at once",
        why="The GPU runs at a fraction of its clock until the signal ends.",
        fix=smi("Check cables and power supplies, and a server's power cap.", "-q -d PERFORMANCE,POWER"),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
    ),
    Cause(
        id="pcie_bus_errors",
        family="environment",
        title="The PCIe bus reports uncorrectable errors at a GPU",
        meaning="the kernel logged uncorrectable PCIe errors (AER) for a GPU",
        why="Transfers were lost; programs fail now or soon, and the GPU may fall off the bus.",
        fix=then(
            do("See how often it happens.", "sudo dmesg | grep -i -e aer -e 'PCIe Bus Error' | tail", root=True),
            lambda setting: power_off(setting, "reseat card and riser; update the mainboard's firmware too"),
        ),
        sources=("https://docs.kernel.org/PCI/pcieaer-howto.html",),
        explains=("gpu_error_reported",),
    ),
    Cause(
        id="pcie_slot_limits_gpu",
        severity="warning",
        family="environment",
        title="The slot gives the GPU fewer or slower PCIe lanes than it could use",
        meaning="the port above the GPU has a lower width or generation than the GPU alone",
        why="Copies to the GPU and between GPUs take longer by the missing share; a step that copies little does not.",
        fix=always(
            do(
                "Move the card to a slot wired to the CPU with all lanes; the mainboard's manual shows which.",
                "lspci -tv",
            ),
            do("Measure what the link achieves.", "gpudoc bench --only copies"),
        ),
        sources=("https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",),
    ),
    Cause(
        id="pcie_link_replays",
        severity="warning",
        family="environment",
        title="The GPU's PCIe link is repeating transfers",
        meaning="the replay counter of the link grows from one reading to the next",
        why="Each repeated transfer costs time, and a link that repeats many fails in the end.",
        fix=then(
            do("Reseat the card, try it without riser or extension cable, then try another slot."),
            smi("See whether the count still grows.", "-q | grep -i replay"),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
    ),
    Cause(
        id="process_far_from_gpu",
        severity="warning",
        family="environment",
        title="This process may run only on CPUs far from the GPU",
        meaning="the CPUs allowed to the process and the GPU hang on different memory nodes",
        why="All that goes to the GPU crosses the link between the processors: slower copies and later launches.",
        fix=always(
            do("Bind the process to the GPU's memory node N: numactl --cpunodebind=N --membind=N python train.py."),
            do("See which memory node the GPU is on.", "nvidia-smi topo -m"),
        ),
        sources=("https://docs.kernel.org/admin-guide/mm/numaperf.html",),
    ),
    Cause(
        id="power_limit_lowered",
        severity="warning",
        family="environment",
        title="A GPU's power limit is set below its default",
        meaning="someone set the GPU to less power than it is built for",
        why="Under load the clocks stay lower than they could be; quieter and cooler, and slower.",
        fix=then(smi("See the limits, and what was set.", "-q -d POWER"), _raise_power),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
    ),
    Cause(
        id="nvlink_error",
        family="environment",
        title="NVLinks of a GPU are down or failing",
        meaning="links between GPUs are down while their likes are up, or the driver reported link faults",
        why="Collectives fall back to slower paths, or stop.",
        fix=then(
            lambda setting: (do("See which links are down.", f"nvidia-smi nvlink --status{selector(setting.cards)}"),),
            reset,
            do("Have bridge, baseboard or card checked if it comes back."),
        ),
        sources=(_XID_DOC,),
        explains=("gpu_needs_reset", "gpu_error_reported"),
    ),
    Cause(
        id="gpu_memory_orphaned",
        family="environment",
        title="GPU memory is held by processes that are gone",
        meaning="the driver still books memory on processes that ended",
        why="The memory is missing to every new program until the remains are gone.",
        fix=then(
            do("Find what still has the device open, and end it.", "sudo fuser -v /dev/nvidia*", root=True),
            reset,
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
        explains=("oom_other_process",),
    ),
    Cause(
        id="fewer_gpus_than_expected",
        family="environment",
        title="Fewer GPUs can be used than expected",
        meaning="fewer GPUs can be used than were asked for",
        why="A job that is written for more ranks does not start.",
        fix=always(do("Compare the bus with the driver's list.", "lspci -d 10de: ; nvidia-smi -L")),
        sources=("https://docs.nvidia.com/deploy/nvml-api/",),
    ),
    Cause(
        id="process_limit_low",
        family="environment",
        title="The limit on processes and threads is too low",
        meaning="the limit of processes and threads (ulimit -u) is so low that loader workers and threads reach it",
        why="Starting a worker then fails with 'Resource temporarily unavailable'.",
        fix=always(
            do("Raise the limit for this shell, or in /etc/security/limits.conf.", "ulimit -u 4096"),
            do("Raise the limit of a container too: docker run --pids-limit.", "cat /sys/fs/cgroup/pids.max"),
            do("Use fewer threads in each process.", "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=4"),
        ),
        sources=("https://man7.org/linux/man-pages/man2/getrlimit.2.html",),
    ),
    Cause(
        id="host_memory_low",
        family="environment",
        title="Host memory is nearly used up",
        meaning="less than 1 GiB of the machine's memory, or of the cgroup's limit, is left",
        why="Loader workers or the trainer are killed as soon as they need more.",
        fix=always(
            do(
                "See which processes hold it, and end those that are not needed.",
                "ps -eo pid,rss,comm --sort=-rss | head",
            )
        ),
        sources=("https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",),
    ),
    Cause(
        id="disk_full",
        family="environment",
        title="The disk is nearly full",
        meaning="less than 1 GiB is free where checkpoints or temporary files go",
        why="Saving a checkpoint or compiling a kernel fails in the middle of a run.",
        fix=always(do("Free some space, or point TMPDIR and --run-dir elsewhere.", "df -h . /tmp")),
        sources=("https://man7.org/linux/man-pages/man3/statvfs.3.html",),
    ),
    Cause(
        id="system_files_not_answering",
        family="environment",
        title="Reading system files hangs",
        meaning="a file below /proc, /sys, /dev or on a mounted disk did not answer within the deadline",
        why="A dead network mount or a hanging device stops every program that touches it.",
        fix=always(
            do(
                "Find the processes that wait for a device, and what they wait for.",
                "ps -eo pid,stat,wchan:32,comm | grep ' D'",
            )
        ),
        sources=("https://docs.kernel.org/filesystems/proc.html",),
    ),
    Cause(
        id="cuda_library_version_differs",
        family="environment",
        title="A CUDA library is not the version that torch pins",
        meaning="an nvidia-* package was replaced by another version than the one torch was built and tested with",
        why="It may load and still fail or slow down in some operations (cuDNN, NCCL).",
        fix=_reinstall_pinned,
        sources=("https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist-multiple-use",),
    ),
    Cause(
        id="duplicate_packages",
        family="environment",
        title="Two copies of a package shadow each other",
        meaning="torch, numpy or a CUDA library is installed twice on the path, in different versions",
        why="Python imports the first; libraries of the second may be loaded beside it.",
        fix=always(
            do(
                "See where each copy comes from, and remove one.",
                "python -c 'import sys; print(*sys.path, sep=\"\\n\")'",
            ),
            do("Set this variable to leave out the copy in your home folder.", "export PYTHONNOUSERSITE=1"),
        ),
        sources=("https://docs.python.org/3/library/site.html",),
    ),
)
