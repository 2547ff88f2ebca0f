"""Causes that the driver reports of a GPU or a switch in the kernel log."""

from __future__ import annotations

from gpudoc.doctor.disruption import power_off, reboot, reset_fabric, then
from gpudoc.doctor.model import Cause, Remedy, Setting
from gpudoc.doctor.remedies import as_root, do

_XID = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
_FABRIC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
_OPEN = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html"
_TURING, _BLACKWELL = (7, 5), (10, 0)


def _other_module(setting: Setting) -> tuple[Remedy, ...]:
    """The kind of module that the GPU needs; both when nobody said which GPU it is."""
    opened = as_root(setting, "apt install nvidia-open", "dnf install nvidia-open", "pacman -S nvidia-open")
    closed = as_root(setting, "apt install cuda-drivers", "dnf install cuda-drivers", "pacman -S nvidia")
    needs_open = do(
        "Install the open module: Blackwell and newer need it, Turing and newer may use it.", opened, root=True
    )
    needs_closed = do("Install the proprietary module: before Turing no other works.", closed, root=True)
    if setting.capability is None:
        steps: tuple[Remedy, ...] = (needs_open, needs_closed)
    else:
        steps = (needs_closed,) if setting.capability < _TURING else (needs_open,)
    which = do("See which module is loaded.", "cat /proc/driver/nvidia/version; modinfo -F license nvidia")
    return (which, *steps, *reboot(setting, "to load it"))


CAUSES: tuple[Cause, ...] = (
    Cause(
        id="gpu_error_reported",
        family="environment",
        title="The driver reported a GPU error (Xid)",
        meaning="an Xid in the kernel log that points to no narrower cause; its number says what to do",
        why="The number says whether a program, the driver, the hardware or a link is at fault, and what mends it.",
        fix=then(
            do("See which numbers came, when, and on which GPU.", "sudo dmesg | grep -i -e nvrm -e xid", root=True),
            do("Look the numbers up in NVIDIA's catalogue (below)."),
        ),
        sources=(_XID,),
    ),
    Cause(
        id="nvswitch_error",
        family="environment",
        title="An NVSwitch reported an error (SXid)",
        meaning="an SXid in the kernel log: a switch between the GPUs, or a link of it, has a fault",
        why="After a fatal one the jobs on the GPUs at that port are ended, and new ones do not start before a reset.",
        fix=then(
            do("See which switch and port it is.", "sudo dmesg | grep -i sxid | tail", root=True),
            do("See what the fabric manager did.", "journalctl -u nvidia-fabricmanager | tail -50"),
            reset_fabric,
        ),
        sources=(_FABRIC,),
        explains=("fabric_manager_not_running", "nvlink_error"),
    ),
    Cause(
        id="gpu_bar_not_assigned",
        family="environment",
        title="The BIOS gave the GPU no memory window on PCIe (BAR)",
        meaning="the firmware of the mainboard left a BAR of the GPU without an address, so the driver cannot reach it",
        why="Large windows (ReBAR) lie above 4 GiB, and the firmware must be told to hand addresses out there.",
        fix=then(
            do(
                "See which window is missing.", "sudo dmesg | grep -e BAR -e assign; sudo lspci -vv -d 10de:", root=True
            ),
            lambda setting: power_off(
                setting, "enable 'Above 4G Decoding' and 'Resizable BAR' beside it in the BIOS (CSM off)"
            ),
            do("Update the BIOS if it has no such setting, or let the kernel assign: pci=realloc on its command line."),
            do("Give a virtual machine a larger 64-bit MMIO window, on its host."),
        ),
        sources=("https://docs.kernel.org/admin-guide/kernel-parameters.html", _OPEN),
        explains=("gpu_hardware_fault", "driver_missing_or_not_loaded", "driver_does_not_support_gpu"),
    ),
    Cause(
        id="kernel_module_kind_wrong",
        family="environment",
        title="The wrong kind of NVIDIA kernel module is loaded for this GPU",
        meaning="the open module is loaded for a GPU that needs the proprietary one, or the other way round",
        why="Blackwell and newer run with the open module only, GPUs before Turing with the proprietary one only.",
        fix=_other_module,
        sources=(_OPEN, "https://github.com/NVIDIA/open-gpu-kernel-modules"),
        explains=("gpu_hardware_fault", "driver_missing_or_not_loaded", "driver_does_not_support_gpu"),
    ),
)
