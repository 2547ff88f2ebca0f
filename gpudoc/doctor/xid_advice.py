"""What to do about an Xid or SXid: NVIDIA's action for its number, in steps."""

from __future__ import annotations

from gpudoc.doctor.cards import selector
from gpudoc.doctor.disruption import power_off, reboot, reset, reset_fabric, restart_fabric_manager, then, users
from gpudoc.doctor.model import Advise, Remedy, Setting
from gpudoc.doctor.remedies import always, do, smi
from gpudoc.knowledge.xids import Level, Xid

_BUG = "sudo nvidia-bug-report.sh"
_REPORT = do("Make a report for the vendor's support if it comes back.", _BUG)
_SANITIZER = do("Find which access of the program it is.", "compute-sanitizer python train.py")
_RESTART_VM = do("Restart the virtual machine that has the GPU, which ends every program in it.", disruptive=True)


def _restart_vm(setting: Setting) -> tuple[Remedy, ...]:
    return (users(setting), _RESTART_VM)


_NOW: dict[str, Advise] = {
    "RESTART_APP": always(do("Start the program again; the GPU itself needs nothing.")),
    "RESET_GPU": reset,
    "RESTART_BM": reboot,
    "RESTART_VM": _restart_vm,
    "RESET_FABRIC": reset_fabric,
    "WORKFLOW_XID_48": reset,
    "WORKFLOW_NVLINK_ERR": reset,
    "WORKFLOW_NVLINK5_ERR": reset,
    "WORKFLOW_XID_45": always(do("Look for another Xid or a program that was ended before it; alone it says nothing.")),
    "CHECK_MECHANICALS": lambda setting: power_off(setting, "seat the card, its cables and bridges firmly"),
    "CHECK_UVM": always(do("Reset the idle GPU if unified memory or a virtual GPU is in use; else do nothing.")),
    "CHECK_THERMALS": always(do("Make sure that the machine's cooling suffices.")),
    "CHECK_FM_CONFIG": always(do("Check the partitions that the fabric manager was given.")),
    "UPDATE_SWFW": always(do("Update driver and firmware; guest and host of a virtual GPU must fit together.")),
    "IGNORE": always(do("Do nothing for now: NVIDIA asks for nothing at once.")),
    "XID_154": always(do("Do what the message names in its second brackets; it was cut off here.")),
    "CONTACT_SUPPORT": always(do("Make a report for NVIDIA's support: no way to mend it is named.", _BUG)),
    "unknown": always(do("Make a report for NVIDIA's support: its table names no action.", _BUG)),
}
_LATER: dict[str, Advise] = {
    "CONTACT_SUPPORT": always(_REPORT),
    "CHECK_APP/CUDA": always(_SANITIZER),
    "WORKFLOW_XID_13": always(_SANITIZER),
    "WORKFLOW_XID_31": always(_SANITIZER),
    "XID_137_FLOW": always(_SANITIZER),
    "INVESTIGATE_SW": always(do("Find which program it was; the message may name its process (pid=).")),
    "INVESTIGATE_LINK_SI": always(do("Have links, bridges and cables checked if it comes back.")),
    "INVESTIGATE_SW_USER": always(do("Find who took the link down, if it was not done on purpose.")),
    "SYMPATHETIC_REPORT_SOLO": always(
        do("Look for another Xid before it; alone it is a case for the vendor's support.")
    ),
}


# an error that was contained to one program: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
CONTAINED = then(
    smi("See which errors are counted.", "-q -d ECC,ROW_REMAPPER"),
    do("Restart the program that met it; the others go on, and new ones may start until the next step."),
    lambda setting: reset(setting, when="when its jobs have ended"),
)


def advise_for(row: Xid | None, level: Level) -> Advise:
    """Steps for a number: what its row asks for, or what the message's own 'fatal' means where there is no row."""
    if row is None:
        return reset_fabric if level == "fatal" else _NOW["unknown"]
    if row.code > 10_000 and row.action == "RESET_GPU":
        # which GPU hangs on the port only the fabric manager's log says
        find = do(
            "Find which GPU hangs on that port in the fabric manager's log.",
            "journalctl -u nvidia-fabricmanager | tail",
        )
        return then(find, reset_fabric)
    later = _LATER.get(row.then)
    return then(_NOW[row.action], later) if later is not None and row.action != row.then else _NOW[row.action]


def advise_recovery(asked: str) -> Advise:
    """Steps for the recovery that an Xid 154 names: 'GPU Reset Required', 'Node Reboot Required', 'Drain P2P'..."""
    wanted = asked.lower()
    if "reboot" in wanted:
        return reboot
    if "imex" in wanted:
        return then(do("Recover the memory that nodes share (IMEX) first."), restart_fabric_manager)
    if "p2p" in wanted:
        return then(do("Let programs that copy between GPUs end; the driver names the next step after that."), reset)
    return reset


def got_over(setting: Setting) -> tuple[Remedy, ...]:
    """Steps for what NVLink itself calls not fatal."""
    return (
        do("Start the program again if it was ended; NVIDIA asks for nothing at once."),
        do("See whether the errors grow.", f"nvidia-smi nvlink --errorcounters{selector(setting.cards)}"),
    )
