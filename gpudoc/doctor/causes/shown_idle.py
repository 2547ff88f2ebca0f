"""What a table of the cards shows while a run is said to go on: nobody uses them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.said_facts import origin_of
from gpudoc.doctor.causes.sign import UNAVAILABLE, about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.model import Absent, Gpu
from gpudoc.facts.readers.model import Text

_MIB = 1 << 20
# a CUDA context and a model take more than this, a desktop on a small card does not
_UNUSED_BYTES = 450 * _MIB
_IDLE_PERCENT = 5
_RUNS = words(
    r"\b(?:train\w*|runs?|running|epochs?|iterations?|steps?)\b[^.\n]{0,80}\b(?:slow\w*|hours?|days?|minutes|long|"
    r"forever)\b",
    r"\b(?:slow\w*|hours?|days?|minutes|long|forever)\b[^.\n]{0,80}\b(?:train\w*|runs?|running|epochs?|iterations?|"
    r"steps?)\b",
    r"\bgpu (?:usage|util\w*) (?:\w+ ){0,3}(?:is |at )?0\b|训练[^。\n]{0,12}慢",
)
_BEFORE = words(
    r"\b(?:before|without) (?:training|running|starting)\b|\b(?:idle state|at idle|stuck)\b|\bhang\w*|Traceback \("
)


def _unused(gpu: Gpu) -> bool:
    used, load = gpu.memory_used_bytes, gpu.utilization_percent
    if isinstance(used, Absent) or isinstance(load, Absent):
        return False
    return used < _UNUSED_BYTES and load < _IDLE_PERCENT


def _find_unused(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """No card holds more than a desktop does, and the training that is said to run is slow: it is elsewhere."""
    gpus, machine = evidence.machine.gpus, evidence.machine
    if isinstance(gpus, Absent) or not gpus or not all(_unused(gpu) for gpu in gpus):
        return
    if machine.torch.is_available is False or text.find(words(UNAVAILABLE)) or text.find(RAN_OUT) or text.find(_BEFORE):
        return
    runs = text.find(_RUNS)
    if runs and about_training(text):
        most = max(gpus, key=lambda gpu: 0 if isinstance(gpu.memory_used_bytes, Absent) else gpu.memory_used_bytes)
        used = 0 if isinstance(most.memory_used_bytes, Absent) else most.memory_used_bytes
        origin = origin_of(evidence, f"gpus.{most.index}.memory_used_bytes")
        seen = observe("GPU memory", f"at most {used // _MIB} MiB used while the run goes on", origin)
        yield Finding(id="training_on_cpu", confidence=0.74, severity="warning", evidence=(seen, quote(runs, "run")))


_FEW_CORES = words(
    r"\bonly (?:us(?:es|ed|ing)? )?(?:one|1|2|two|a single)\b[^.\n]{0,24}\b(?:cpus?|cores?)\b",
    r"\b(?:one|1|2|two|a single) (?:of (?:my |the )?\d+ )?(?:cpu )?cores? (?:is|are|were|was) (?:\w+ )?(?:us\w*|busy|"
    r"utili[sz]ed)\b",
    r"\b(?:one|1) (?:cpu )?(?:core|thread) (?:is |runs |at )?(?:at |on )?(?:9\d|100) ?%",
)
_ASKS_MORE = words(
    r"\b(?:no matter|regardless of|although|even though|despite)\b[^.\n]{0,30}\bworkers?\b|\b(?:[2-9]|\d\d) workers\b|"
    r"\b(?:num_?)?workers ?= ?(?:[2-9]|\d\d)\b"
)


def _find_one_core(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Workers were asked for, and one core does the work: the others may not run elsewhere."""
    del evidence
    few, more = text.find(_FEW_CORES), text.find(_ASKS_MORE)
    if few and more and about_training(text) and not text.find(RAN_OUT):
        seen = tuple(dict.fromkeys((quote(few, "cores"), quote(more, "workers"))))
        yield Finding(id="dataloader_bottleneck", confidence=0.6, severity="warning", evidence=seen)


FINDERS = (
    text_finder("training_on_cpu", _find_unused),
    text_finder("dataloader_bottleneck", _find_one_core),
)
