"""The advice that a row of a cause names: steps that differ from one GPU, driver or finding to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudoc.doctor.cards import selector
from gpudoc.doctor.disruption import power_off, reboot, reload_modules, reset, reset_fabric, restart_wsl, users
from gpudoc.doctor.model import Remedy, Setting
from gpudoc.doctor.remedies import another_card, as_root, do, driver_update, power_limits, torch_build
from gpudoc.doctor.xid_advice import advise_recovery
from gpudoc.facts.model import Absent

# NVML_GPU_RECOVERY_ACTION_* by the names that an Xid 154 uses
_RECOVERY = {2: "Node Reboot Required", 3: "Drain P2P", 5: "Recover IMEX Domain", 7: "System Reboot Required"}
_TURING, _BLACKWELL = (7, 5), (10, 0)


def _recover(setting: Setting) -> tuple[Remedy, ...]:
    """What the driver asks for where it says so, a reboot before all, which a reset cannot replace; else a reset."""
    actions = [card.facts.recovery_action for card in setting.cards if not isinstance(card.facts, Absent)]
    asked = [_RECOVERY[action] for action in actions if isinstance(action, int) and action in _RECOVERY]
    steps = advise_recovery(min(asked, key=lambda name: "Reboot" not in name, default=""))(setting)
    return steps if any("Reboot" in name for name in asked) else (*steps, *reboot(setting, "if the reset is refused"))


def _without_gsp(setting: Setting) -> tuple[Remedy, ...]:
    """GSP switched off, only for the proprietary module and before Blackwell; everything else needs it."""
    if setting.open_module or (setting.capability is not None and setting.capability >= _BLACKWELL):
        return (do("Try another driver branch if it comes back; this GPU cannot run without GSP here."),)
    if setting.open_module is None or setting.capability is None:
        say = "See which module it is: only the proprietary one, before Blackwell, can switch GSP off"
        return (do(f"{say} (NVreg_EnableGpuFirmware).", "cat /proc/driver/nvidia/version; nvidia-smi -L"),)
    run = "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf"
    return (do("Run without GSP if it comes back, from the next load of the module on.", run),)


def _stress_test(setting: Setting) -> tuple[Remedy, ...]:
    indices = [str(card.index) for card in setting.cards if isinstance(card.index, int)]
    only = f" -i {','.join(indices)}" if indices and len(indices) == len(setting.cards) else ""
    return (users(setting), do("Run a stress test on the idle GPU.", f"dcgmi diag -r 3{only}"))


def _mig_instances(setting: Setting) -> tuple[Remedy, ...]:
    which = selector(setting.cards)
    if not which:
        return (
            do("See which GPU has MIG on, and which instances it could have.", "nvidia-smi -L; nvidia-smi mig -lgip"),
            do("Make instances there (nvidia-smi mig -cgi ... -C) or switch MIG off (-mig 0), with its -i."),
        )
    return (
        do("Make one instance of the whole GPU.", f"sudo nvidia-smi mig{which} -cgi 0 -C && nvidia-smi -L"),
        users(setting),
        do("Switch MIG off instead, which resets the GPU.", f"sudo nvidia-smi{which} -mig 0", disruptive=True),
    )


def _several_processes(setting: Setting) -> tuple[Remedy, ...]:
    which = selector(setting.cards)
    if not which:
        return (do("Let that GPU take several processes: nvidia-smi -c DEFAULT with its -i."),)
    return (do("Allow several processes.", f"sudo nvidia-smi{which} -c DEFAULT"),)


def _see_whether_drained(setting: Setting) -> tuple[Remedy, ...]:
    known = [card.pci_address for card in setting.cards[:1] if not isinstance(card.pci_address, Absent)]
    return tuple(do("Check whether it is drained on purpose.", f"nvidia-smi drain -p {one} -q") for one in known)


def _other_module(setting: Setting) -> tuple[Remedy, ...]:
    """The kind of module that the GPU needs; both when nobody said which GPU it is."""
    opened = as_root(setting, "apt install nvidia-open", "dnf install nvidia-open", "pacman -S nvidia-open")
    closed = as_root(setting, "apt install cuda-drivers", "dnf install cuda-drivers", "pacman -S nvidia")
    needs_open = do("Install the open module: Blackwell and newer need it, Turing and newer may use it.", opened)
    needs_closed = do("Install the proprietary module: before Turing no other works.", closed)
    if setting.capability is None:
        return (needs_open, needs_closed)
    return (needs_closed,) if setting.capability < _TURING else (needs_open,)


# by the name in the row; the other words of the row's step are the arguments
ADVICE: Mapping[str, Callable[..., tuple[Remedy, ...]]] = {
    "another_card": another_card,
    "driver_update": driver_update,
    "mig_instances": _mig_instances,
    "other_module": _other_module,
    "power_limits": lambda setting, say, share: power_limits(setting, say, share=float(share)),
    "power_off": power_off,
    "reboot": reboot,
    "recover": _recover,
    "reload_modules": reload_modules,
    "reset": reset,
    "reset_fabric": reset_fabric,
    "restart_wsl": restart_wsl,
    "see_whether_drained": _see_whether_drained,
    "several_processes": _several_processes,
    "stress_test": _stress_test,
    "torch_build": torch_build,
    "without_gsp": _without_gsp,
}
