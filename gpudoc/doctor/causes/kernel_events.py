"""Judge the kernel log's messages about GPUs and NVSwitches, in the same way on a live machine and in a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpudoc.doctor.cards import card_at, cards_at, gpu_at, plain_address
from gpudoc.doctor.causes.live import events, observe, pci_gpus
from gpudoc.doctor.model import Advise, Card, Evidence, Finder, Finding, Observation, Severity, Skip
from gpudoc.doctor.xid_advice import CONTAINED, advise_for, advise_recovery, got_over
from gpudoc.facts.model import Absent, KernelEvent, Machine, known_or
from gpudoc.facts.topology import AMD, NVIDIA
from gpudoc.knowledge.xids import Level, Xid, find_sxid, find_xid
from gpudoc.patterns import Pattern

_KINDS = ("xid", "sxid", "fallen_off_bus", "aer", "bar", "kind", "gsp")
_WHY_NOT_STARTED = ("gpu_bar_not_assigned", "kernel_module_kind_wrong", "gsp_firmware_timeout", "gpu_fallen_off_bus")
NOT_STARTED = (*_WHY_NOT_STARTED[:3], "gpu_hardware_fault")
GENERIC = "gpu_error_reported"
SWITCH = "nvswitch_error"
# how sure an Xid of each kind is about the cause that the table names for it
_SURE = {"application": 0.75, "memory": 0.94, "bus": 0.96, "firmware": 0.95, "power": 0.95}
_ELSE_SURE = 0.8
# the message's own word for its severity: NVLink's numbers since Blackwell and every SXid have one
_FATAL = Pattern(r"(?i)(?<!non-)(?<!non)\bfatal\b")
_HARMLESS = Pattern(r"(?i)\bnon-?fatal\b|\bcorrectable\b")
# lines that continue the data of the SXid before them
_DATA_LINE = Pattern(r"(?i)\bSeverity \d+ Engine|\bData \{")
_RECOVERY = Pattern(r"(?i)recovery action changed from 0x[0-9a-f]+ \([^)]*\) to 0x[0-9a-f]+ \(([^)]*)\)")
_UNCORRECTED = Pattern(r"(?i)uncorrect")
_OF_A_GPU = Pattern(r"\b(?:nvidia|amdgpu) [0-9a-f:.]+")
_WORSE_BY_WORD = range(144, 151)
_BAR = Xid(code=0, name="", kind="bus", severity="fatal", action="unknown", meaning="", cause="gpu_bar_not_assigned")
_FALLEN = replace(_BAR, cause="gpu_fallen_off_bus")
_FIXED = {
    "fallen_off_bus": _FALLEN,
    "bar": _BAR,
    "kind": replace(_BAR, cause="kernel_module_kind_wrong", kind="driver"),
    "aer": replace(_BAR, cause="pcie_bus_errors", severity="error"),
}
_GSP = replace(_BAR, cause="gsp_firmware_timeout", kind="firmware")
_ADAPTER = replace(_BAR, cause="gpu_hardware_fault", kind="undecided")
# the driver read all ones at the GPU's address
_ALL_ONES = Pattern(r"RmInitAdapter failed.{0,80}0x2[4-6]:0x(?:ff)?ffff\b")
_UNSURE = 0.65
_MOST_ALIKE = 6


@dataclass(slots=True)
class _Log:
    """The events of one machine, and what they say together; `live` if the machine itself can still be asked."""

    machine: Machine
    live: bool
    recovery: dict[str, KernelEvent] = field(default_factory=dict)
    fatal: set[str] = field(default_factory=set)


def _of_cause(cause: str, live: bool, evidence: Evidence) -> Iterator[Finding | Skip]:
    if live == (evidence.source != "file"):
        yield from (finding for finding in findings(evidence) if finding.id == cause)


def findings(evidence: Evidence) -> list[Finding]:
    """All findings from the kernel log of this evidence, one for each event."""
    log = _Log(evidence.machine, evidence.source != "file")
    for event in events(log.machine, "xid"):
        if _recovery(event):
            log.recovery[_place(event)] = event
    few = list(_few(events(log.machine, *_KINDS)))
    log.fatal = {_place(event) for event in few if _row(event)[1] == "fatal"}
    judged = [(event, _judge(event, log)) for event in few]
    # the hardware is to blame for an adapter that did not start only if the log gives no other reason
    known_why = any(finding is not None and finding.id in _WHY_NOT_STARTED for _, finding in judged)
    found = [finding for event, finding in judged if not (known_why and _fixed(event) is _ADAPTER)]
    found += [_wanted(event, log) for event in log.recovery.values()]
    kept = [finding for finding in found if finding is not None]
    # a notice about a removed channel only follows from the event that began it
    others = any(finding.severity != "info" for finding in kept)
    return [f for f in kept if not (others and f.id == GENERIC and f.severity == "info")]


def unknown_numbers(evidence: Evidence) -> tuple[Observation, ...]:
    """The kernel's lines with an Xid or SXid that is in no table: an error was reported, but its meaning is unknown."""
    seen: dict[str, Observation] = {}
    for event in events(evidence.machine, "xid", "sxid"):
        row, level = _row(event)
        if row is None and level is None and not _DATA_LINE.search(event.text) and _from_the_driver(event):
            name = f"{'SXid' if event.kind == 'sxid' else 'Xid'} {event.code}"
            seen.setdefault(name, observe(name, event.text, "kernel log"))
    return tuple(seen.values())


def _few(logged: Iterator[KernelEvent]) -> Iterator[KernelEvent]:
    """The first few of the events that say the same about one device: a log may repeat one ten thousand times."""
    counts: Counter[tuple[object, ...]] = Counter()
    for event in logged:
        same = (event.kind, known_or(event.code, -1), known_or(event.pci_address, ""), bool(_FATAL.search(event.text)))
        counts[same] += 1
        if counts[same] <= _MOST_ALIKE:
            yield event


def _recovery(event: KernelEvent) -> bool:
    """Whether this is an Xid 154 whose message names the recovery; only a device's last one is judged."""
    return event.kind == "xid" and event.code == 154 and _RECOVERY.search(event.text) is not None


def _place(event: KernelEvent) -> str:
    return plain_address(known_or(event.pci_address, ""))


def _from_the_driver(event: KernelEvent) -> bool:
    """Whether this is the driver's own line; in prose, a number after 'Xid' may be anything."""
    return not isinstance(event.pci_address, Absent) or "NVRM" in event.text


def _row(event: KernelEvent) -> tuple[Xid | None, Level | None]:
    """The row for an event's number, and the severity that its message states."""
    fixed = _fixed(event)
    if fixed is not None:
        return fixed, fixed.severity
    code = known_or(event.code, -1)
    row = find_sxid(code) if event.kind == "sxid" else find_xid(code)
    level: Level | None = row.severity if row is not None else None
    if event.kind == "sxid" or code in _WORSE_BY_WORD:
        if _FATAL.search(event.text):
            level = "fatal"
        elif _HARMLESS.search(event.text):
            level = level if event.kind == "sxid" and level is not None else "warning"
    return row, level


def _fixed(event: KernelEvent) -> Xid | None:
    """The row for a line without a number; None for a line with one."""
    if event.kind != "gsp":
        return _FIXED.get(event.kind)
    if _ALL_ONES.search(event.text):
        return _FALLEN
    return _GSP if "gsp" in event.text.lower() else _ADAPTER


def _judge(event: KernelEvent, log: _Log) -> Finding | None:
    row, level = _row(event)
    if level is None or (event.kind == "sxid" and _DATA_LINE.search(event.text)) or _recovery(event):
        return None
    if event.kind == "aer" and not _counts(event, log):
        return None
    if row is not None and row.kind == "application" and log.live:
        # on a machine that still works, this was a program of an earlier job
        return None
    prose = event.kind == "xid" and row is not None and not row.cause and not _from_the_driver(event)
    if prose and row is not None and (row.action == "CONTACT_SUPPORT" or level == "notice"):
        # a number that current GPUs hardly use is more likely a count in somebody's sentence
        return None
    cause = SWITCH if event.kind == "sxid" else (row.cause if row else "") or GENERIC
    card = None if event.kind == "sxid" else card_at(event.pci_address, log.machine)
    number = {"xid": f"Xid {event.code}", "sxid": f"SXid {event.code}"}.get(event.kind, "kernel log")
    told = cause in (GENERIC, SWITCH) and row is not None
    sure = _SURE.get(row.kind, _ELSE_SURE) if row is not None and level != "notice" and not prose else 0.5
    return Finding(
        id=cause,
        confidence=_UNSURE if row is _ADAPTER else sure,
        severity=_severity(level, card, log, asked=event.kind != "sxid"),
        evidence=(observe(number, event.text, "kernel log"),),
        cards=(card,) if card is not None else (),
        title=f"{number}: {row.meaning}" if told and row else "",
        advise=_advice(event, row, level, log) or (advise_for(row, level) if cause in (GENERIC, SWITCH) else None),
    )


def _advice(event: KernelEvent, row: Xid | None, level: Level, log: _Log) -> Advise | None:
    """The advice before the cause's own: the driver wants a reboot, or nothing needs a reset; None for neither."""
    place = _place(event)
    if place in log.recovery and "reboot" in _asked(log.recovery[place]).lower():
        return advise_recovery("reboot")
    if place in log.fatal or row is None:
        return None
    if row.action == "RESTART_APP" and row.kind == "memory":
        return CONTAINED
    return got_over if row.code in _WORSE_BY_WORD and level == "warning" else None


def _counts(event: KernelEvent, log: _Log) -> bool:
    """Whether a PCIe error was not corrected and, as far as can be known, belongs to a GPU."""
    if not _UNCORRECTED.search(event.text):
        return False
    place = _place(event)
    on_the_bus = {plain_address(d.address) for vendor in (NVIDIA, AMD) for d in pci_gpus(log.machine, vendor)}
    return place in on_the_bus or (not log.live) or bool(_OF_A_GPU.search(event.text))


def _severity(level: Level, card: Card | None, log: _Log, *, asked: bool) -> Severity:
    """The severity: in a text the fault counts; on a live machine it may be over, unless the GPU itself says otherwise.

    A switch cannot be `asked`: its fatal error counts until the log begins again.
    """
    if level == "notice":
        return "info"
    if level == "warning":
        return "warning"
    if not log.live:
        return "broken"
    return "broken" if level == "fatal" and (not asked or _still(card, log)) else "warning"


def _still(card: Card | None, log: _Log) -> bool:
    """Whether the machine confirms now that a fault in its log is not over."""
    machine = log.machine
    if isinstance(machine.gpus, Absent):
        # missing GPUs confirm the fault only if NVML was asked
        return "nvml" in machine.probe_failures or not isinstance(machine.driver.nvml_code, Absent)
    if card is None:
        return _fewer(machine)
    place = known_or(card.pci_address, "")
    if place in log.recovery and _asks(log.recovery[place], log):
        return True
    gpu = gpu_at(place, machine)
    if gpu is None:
        return _fewer(machine)
    return gpu.lost is True or known_or(gpu.nvml_code, 0) != 0 or known_or(gpu.recovery_action, 0) != 0


def _fewer(machine: Machine) -> bool:
    """Whether NVML lists fewer GPUs than the driver has on the bus."""
    listed: Sequence[object] = known_or(machine.gpus, ())
    return len(listed) < len([d for d in pci_gpus(machine, NVIDIA) if d.driver == "nvidia"])


def _asked(event: KernelEvent) -> str:
    """The recovery that a card's last Xid 154 asks for; '' for none."""
    match = _RECOVERY.search(event.text)
    return "" if match is None or match[1].strip().lower() == "none" else match[1].strip()


def _asks(event: KernelEvent, log: _Log) -> str:
    """The recovery that is still needed: not a reset if the driver says that it is done, but always a reboot."""
    asked = _asked(event)
    gpu = gpu_at(_place(event), log.machine) if log.live else None
    done = gpu is not None and gpu.recovery_action == 0 and "reboot" not in asked.lower()
    return "" if done else asked


def _wanted(event: KernelEvent, log: _Log) -> Finding | None:
    asked = _asks(event, log)
    if not asked:
        return None
    return Finding(
        id="gpu_needs_reset",
        confidence=0.97,
        evidence=(observe("Xid 154", event.text, "kernel log"),),
        cards=cards_at((event.pci_address,), log.machine),
        title="The driver asks for a reboot of the machine" if "reboot" in asked.lower() else "",
        advise=advise_recovery(asked),
    )


CAUSES = (
    "gpu_fallen_off_bus",
    "gpu_ecc_error",
    "gpu_hardware_fault",
    "gsp_firmware_timeout",
    "nvlink_error",
    SWITCH,
    "gpu_needs_reset",
    "gpu_power_missing",
    "gpu_bar_not_assigned",
    "kernel_module_kind_wrong",
    "pcie_bus_errors",
    "illegal_memory_access",
    "kernel_launch_timeout",
    GENERIC,
)
# the chain itself checks for a GPU that fell off the bus, because nothing after that link can be judged; a program of
# an earlier job is not a finding about a machine, so a check for it could not fail there
_NOT_ASKED_LIVE = ("gpu_fallen_off_bus", "illegal_memory_access", "kernel_launch_timeout")

FINDERS: tuple[Finder, ...] = (
    *(
        Finder(id=cause, find=partial(_of_cause, cause, True), needs=("kernel_log",))
        for cause in CAUSES
        if cause not in _NOT_ASKED_LIVE
    ),
    *(Finder(id=cause, find=partial(_of_cause, cause, False), reads="text") for cause in CAUSES),
)
