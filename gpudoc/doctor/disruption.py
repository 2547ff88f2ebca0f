"""What ends other people's work (a reset, a reboot, a reload of modules), always behind a look at whose it is."""

from __future__ import annotations

from gpudoc.doctor.cards import called, selector
from gpudoc.doctor.model import Remedy, Setting
from gpudoc.doctor.remedies import do
from gpudoc.facts.model import Absent, Gpu, GpuProcess

_LIST = "--query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"
_AMPERE = (8, 0)


def users(setting: Setting, *, everywhere: bool = False) -> Remedy:
    """Who uses the finding's cards (or any GPU, `everywhere`), by name where a live machine told, and how to see."""
    cards = () if everywhere else setting.cards
    which = "the GPUs" if everywhere else called(cards)
    indices = [card.index for card in cards] if cards else list(setting.holders)
    told = [setting.holders.get(index) for index in indices if not isinstance(index, Absent)]
    known = [process for processes in told for process in processes or ()]
    if known:
        say = f"End or move {_these(known)} on {which} first, and look for others."
    elif told and all(processes is not None for processes in told) and len(told) == len(indices):
        say = f"Look again right before the next step: no process is listed on {which} now."
    else:
        say = f"See which programs use {which}, and end or move them first."
    command = f"nvidia-smi{selector(cards)} {_LIST}"
    return do(say, command if _windows(setting) else f"{command}; sudo fuser -v /dev/nvidia*")


def _these(processes: list[GpuProcess]) -> str:
    names = [f"{'a process' if isinstance(p.name, Absent) else p.name} ({p.pid})" for p in processes[:3]]
    more = len(processes) - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more else ''}"


def _drained(setting: Setting) -> tuple[Remedy, ...]:
    match setting.place:
        case "slurm":
            run = 'sudo scontrol update nodename=$(hostname -s) state=drain reason="GPU fault"'
            return (do("Let the node take no new jobs, as administrator, and let running ones end.", run),)
        case "kubernetes":
            return (
                do("Let the node take no new pods.", "kubectl cordon NODE"),
                do("Move its pods elsewhere.", "kubectl drain NODE --ignore-daemonsets", disruptive=True),
            )
        case _:
            return ()


def _windows(setting: Setting) -> bool:
    """Whether the driver is that of Windows, which has other commands."""
    return setting.place in ("windows", "wsl")


def _where(setting: Setting) -> str:
    if _windows(setting):
        return " in Windows"
    return " on the host" if setting.place in ("docker", "kubernetes") else ""


def _machine(setting: Setting) -> str:
    return "the host" if setting.place in ("docker", "kubernetes") else "the machine"


def _end_work(setting: Setting, say: str, run: str = "", *, everywhere: bool = True) -> tuple[Remedy, ...]:
    """The step behind a look at whose work it ends; a command of Linux is left out where Windows has the driver."""
    step = do(say, "" if _windows(setting) else run, disruptive=True)
    return (users(setting, everywhere=everywhere), *_drained(setting), step)


def reset(setting: Setting, when: str = "") -> tuple[Remedy, ...]:
    """Reset the finding's cards and no others; all at once where their NVLinks leave no choice; no command without one.

    GPUs before Ampere that NVLink joins are reset in one command, later ones singly (`man nvidia-smi`, --gpu-reset).
    """
    which = selector(setting.cards)
    there = f"{_where(setting)}{f' {when}' if when else ''}"
    if not which:
        say = f"Reset that GPU{there} (nvidia-smi --gpu-reset with its -i), which ends every program on it."
        find = do("Find which GPU it is by the address in the evidence.", "nvidia-smi -L; lspci -d 10de:")
        return (find, *_end_work(setting, say))
    if any(_joined(card.facts) for card in setting.cards):
        say = f"Reset all GPUs at once{there}, as NVLink joins them; this ends every program on every GPU."
        return _end_work(setting, say, "sudo nvidia-smi --gpu-reset")
    say = f"Reset {called(setting.cards)}{there}, which ends every program on it."
    return _end_work(setting, say, f"sudo nvidia-smi --gpu-reset{which}", everywhere=False)


def _joined(gpu: object) -> bool:
    if not isinstance(gpu, Gpu) or isinstance(gpu.capability, Absent) or isinstance(gpu.nvlink_active, Absent):
        return False
    return gpu.capability < _AMPERE and gpu.nvlink_active > 0


def reset_fabric(setting: Setting) -> tuple[Remedy, ...]:
    """Reset every GPU and NVSwitch, as a fault of the fabric itself needs; the fabric manager is stopped meanwhile."""
    run = (
        "sudo systemctl stop nvidia-fabricmanager && sudo nvidia-smi --gpu-reset"
        " && sudo systemctl start nvidia-fabricmanager"
    )
    say = f"Reset all GPUs and NVSwitches together{_where(setting)}, which ends every program on every GPU."
    return _end_work(setting, say, run)


def restart_fabric_manager(setting: Setting) -> tuple[Remedy, ...]:
    """Restart the service of the NVSwitches, which may abort the jobs that use NVLink."""
    say = f"Restart the fabric manager{_where(setting)}, which may end every job that uses NVLink."
    return _end_work(setting, say, "sudo systemctl restart nvidia-fabricmanager")


def reboot(setting: Setting, when: str = "") -> tuple[Remedy, ...]:
    """Reboot the machine; `when` says under which condition or to what end."""
    there = " in Windows" if _windows(setting) else ""
    say = f"Reboot {_machine(setting)}{there}{f' {when}' if when else ''}; this ends every program on it."
    return _end_work(setting, say, "sudo reboot")


def power_off(setting: Setting, why: str) -> tuple[Remedy, ...]:
    """Work for which the machine is switched off; `why` says what to do then."""
    say = f"Switch {_machine(setting)} off, which ends every program on it, and {why}."
    return _end_work(setting, say)


def reload_modules(setting: Setting, what: str, run: str, when: str = "") -> tuple[Remedy, ...]:
    """Unload kernel modules and load them again; `when` says under which condition."""
    say = f"Reload {what}{_where(setting)}{f' {when}' if when else ''}; this ends every program on every GPU."
    return _end_work(setting, say, run)
