"""Memory that somebody else holds, or that is simply used up, by what tables and half sentences show of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import HOST_MEMORY
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import Sign, about_training, finders, quote, text_finder, words
from gpudoc.doctor.diagnose import observe
from gpudoc.doctor.model import Evidence, Finding, Skip
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


_RAN_DRY = words(
    r"\b(?:had |has |have )?(?:already )?r[au]n(?:s|ning)? (?:out|dry)\b",
    r"\b(?:not|n't) (?:\w+ ){0,2}enough\b|\binsufficient\b",
    "不够|不足",
)
_READS = words(r"\btrain\w*|\bload\w*|\bdata ?sets?\b|\bdataloaders?\b|\bepochs?\b|\bpre-?process\w*|训练|加载|数据")
_ON_CARD = words(r"\bvram\b|\bgpu (?:memory|ram|mem)\b|\bcuda out\b|\bcuda memory\b|显存")


def _find_dry(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host's memory was not enough, said over more than one sentence."""
    del evidence
    if not about_training(text) or text.find(RAN_OUT):
        return
    dry = together(text, HOST_MEMORY, _RAN_DRY, _READS, around=1, without=_ON_CARD)
    if dry:
        yield Finding(id="host_oom_killed", confidence=0.66, evidence=(quote(dry, "memory"),))


_KILLED_ELSEWHERE = words(
    r"(?:数据|训练|进程|程序|加载|运行|模型)[^。\n]{0,8} ?\bkilled\b",
    r"\b(?:muere|matado|tué|beendet|убит|завершен)\b[^.\n]{0,30}\b(?:memoria|mémoire|speicher|памят\w*|RAM)\b",
    r"\b(?:memoria|mémoire|speicher|памят\w*|RAM)\b[^.\n]{0,30}"
    r"\b(?:llena|saturée|voll|не хватает|insuficiente|insuffisante)\b",
)


FINDERS = (
    text_finder("oom_other_process", _find_unowned),
    text_finder("host_oom_killed", _find_dry),
    *finders(
        Sign(
            id="host_oom_killed",
            in_training=True,
            said=_KILLED_ELSEWHERE,
            unless=words(r"CUDA out of memory|显存"),
            sure=0.78,
        ),
        # torch and cuDNN tell that they could not start before anybody tells that no memory was left
        Sign(
            id="oom_masked_as_library_error",
            said=words(
                r"cublas runtime error ?: (?:resource allocation failed|library not initialized)",
                r"Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize",
                r"Blas x?GEMM\w* launch failed",
                r"\bNo algorithm worked!",
                r"DNN library initialization failed",
            ),
            unless=words(r"not match|mismatch|compiled with|but source was compiled|LoadLibrary|dlerror|cannot open"),
            sure=0.62,
        ),
    ),
)
