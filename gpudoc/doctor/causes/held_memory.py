"""Memory that somebody else holds, or that is simply used up, by what tables and half sentences show of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.model import Absent
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.units import GIB, format_bytes

_ABOUT_MEMORY = words(
    r"\bmemory\b[^.\n]{0,40}\b(?:full|held|occupied|taken|used|allocated|releas\w*|free\w*|leak\w*)\b|\boom\b"
)


# the table of processes with no row between its head and its end
_NO_ROWS = Pattern(r"Process name[^\n]*\n(?:[^\n]*Usage[^\n]*\n)?[^\n\w]*={5}[^\n\w]*\n[^\n\w]*[-+]{5}")
# a driver and a screen take less
_HELD_BYTES = 1.5 * GIB


def _find_unowned(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A table in which an idle card's memory is taken and no process is listed: whoever holds it is not shown."""
    gpus = evidence.machine.gpus
    said = text.find(RAN_OUT) or text.find(_ABOUT_MEMORY)
    if said is None or isinstance(gpus, Absent):
        return
    for gpu in gpus:
        used, load, processes = gpu.memory_used_bytes, gpu.utilization_percent, gpu.processes
        if isinstance(used, Absent) or isinstance(load, Absent):
            continue
        nobody = text.find(_NO_ROWS) is not None if isinstance(processes, Absent) else not processes
        if used > _HELD_BYTES and load == 0 and nobody:
            value = f"{format_bytes(used)} in use at 0 %, no process listed"
            yield Finding(
                id="oom_other_process",
                confidence=0.86,
                severity="broken" if text.find(RAN_OUT) else "warning",
                evidence=(observe(f"GPU {gpu.index}", value, "nvidia-smi"), quote(said, "memory")),
            )
            return


FINDERS = (text_finder("oom_other_process", _find_unowned),)
