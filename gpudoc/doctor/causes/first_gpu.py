"""Find why the first GPU is fuller than the others: ranks open a context on it in addition to their own GPU's."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.live import nvml_gpus
from gpudoc.doctor.causes.sign import text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Severity, Skip, observe
from gpudoc.facts.model import Absent, GpuProcess, known_or
from gpudoc.facts.readers.model import CleanText
from gpudoc.units import MIB, format_bytes

_RAN_OUT = words("out of memory")


def _find_contexts(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Several processes on GPU 0 that hold only a context, while another one trains there."""
    for gpu in nvml_gpus(evidence.machine):
        processes: tuple[GpuProcess, ...] = known_or(gpu.processes, ())
        held = sorted(size for p in processes if (size := known_or(p.memory_bytes, 0)) > 100 * MIB)
        names = {p.name for p in processes if not isinstance(p.name, Absent)}
        # a bare CUDA context takes 200 to 900 MiB: look for several of that size next to one that trains
        contexts = [h for h in held if h < 1100 * MIB]
        if gpu.index == 0 and len(contexts) >= 2 and held[-1] > 2 * max(contexts) and len(names) <= 2:
            sizes = ", ".join(format_bytes(h) for h in reversed(held))
            seen = (observe("memory per process on GPU 0", sizes, "nvidia-smi"),)
            severity: Severity = "warning" if not text.find(_RAN_OUT) else "broken"
            yield Finding(id="extra_contexts_on_gpu0", confidence=0.9, severity=severity, evidence=seen)
            return


FINDERS = (text_finder("extra_contexts_on_gpu0", _find_contexts),)
