"""The advice that a row of a cause names: steps that differ from one GPU, driver or finding to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudoc.doctor.disruption import (
    power_off,
    reboot,
    reload_modules,
    reset,
    reset_fabric,
    restart_fabric_manager,
    users,
)
from gpudoc.doctor.model import Advise, Remedy, Setting
from gpudoc.doctor.remedies import another_card, as_root, do, driver_update, power_limits, torch_build
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


def advise_recovery(asked: str) -> Advise:
    """Steps for the recovery that an Xid 154 names: 'GPU Reset Required', 'Node Reboot Required', 'Drain P2P'..."""
    wanted = asked.lower()
    if "reboot" in wanted:
        return reboot
    if "imex" in wanted:
        first = do("Recover the memory that nodes share (IMEX) first.")
        return lambda setting: (first, *restart_fabric_manager(setting))
    if "p2p" in wanted:
        end = do("Let programs that copy between GPUs end; the driver names the next step after that.")
        return lambda setting: (end, *reset(setting))
    return reset


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
    "other_module": _other_module,
    "power_limits": lambda setting, say, share: power_limits(setting, say, share=float(share)),
    "power_off": power_off,
    "reboot": reboot,
    "recover": _recover,
    "reload_modules": reload_modules,
    "reset": reset,
    "reset_fabric": reset_fabric,
    "see_whether_drained": _see_whether_drained,
    "stress_test": _stress_test,
    "torch_build": torch_build,
    "users": lambda setting: (users(setting),),
    "without_gsp": _without_gsp,
}
