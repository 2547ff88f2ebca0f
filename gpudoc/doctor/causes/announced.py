"""What programs announce at their start: the device they took, although another was meant."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import UNAVAILABLE, text_finder, words
from gpudoc.doctor.causes.told_pace import slow_finding
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import Text

# each as its program prints it: transformers, sentence-transformers, stable-baselines3, spaCy, fairseq, accelerate,
# nnU-Net, Coqui TTS, MXNet, Caffe, Darknet, Chainer, Flair, Ultralytics
_ON_CPU = words(
    r"\bdevice: cpu, n_gpu: ?0\b",
    r"\buse pytorch device(?:_name)?: cpu\b",
    r"\busing (?:device:? ?)?['\"]?cpu['\"]?(?: device)?\W{0,2}$",
    r"\busing cpu device\b|\binfo\W{1,4}using cpu\b",
    r"\bto switch to gpu 0, use the option: --gpu-id 0\b",
    r"\btraining on 0 devices\b",
    r"\bnum_processes: 1 process index: 0 local process index: 0 device: cpu\b",
    r"\busing cuda: false\b|\bcuda: false\b",
    r"\bstart training with \[cpu\(\d*\)\]",
    r"\] use cpu\.",
    r"\bgpu isn't used\b",
    r"^gpu: -1\s*$",
    r"\b(?:running|training|executing|computing) on (?:the )?(?:device:? ?)?\W?cpu\W?\s*$",
    r"\btorch[- ][\d.]+(?:\+\w+)? cpu \(",
    r"\b(?:selected|current|active|default|training|torch) device\W{1,4}(?:torch\.)?(?:device\(type=)?['\"]?cpu\b",
)
_WANTED = words(
    r"\bgpus?\b|\bcuda\b|\b[RG]TX\b|\btesla\b|\bnvidia\b|\b[AHV]100\b|\bT4\b",
)
_SAID_SO = words(
    r"\bslow\w*|\blong\b|\bhours?\b|\bwhy\b|\bnot us\w+|\bn't us\w+|\binstead\b|\bshould\b|\bhow (?:can|do|to)\b|"
    r"\bhelp\b|\?|慢|为什么"
)
_MEANT_SO = words(
    r"\bno_cuda\W{1,4}true\b|--no[-_]cuda\b|\b(?:do not|don't|doesn't) have (?:a |an |any )?(?:nvidia )?gpu|\bno gpu\b|"
    r"\bcpu[- ]only\b|\bwithout (?:a )?gpu\b|\bon purpose\b|Traceback \("
)


def _find_announced(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The program itself says that it computes on the CPU, and somebody wonders why."""
    said = text.find(_ON_CPU)
    if said is None or evidence.machine.torch.is_available is False or text.find(words(UNAVAILABLE)):
        return
    if text.find(_WANTED) and text.find(_SAID_SO) and not text.find(_MEANT_SO):
        yield slow_finding("training_on_cpu", 0.74, said)


FINDERS = (text_finder("training_on_cpu", _find_announced),)
