"""GPUs that are not there, hidden by a variable, or not used: what a text says of who sees which device."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.doctor.setting import known
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_UNAVAILABLE = words(
    UNAVAILABLE,
    r"No CUDA GPUs are available",
    r"no CUDA-capable device",
    r"Is CUDA available: False",
    r"CUDA (?:is )?not available",
    r"device_count\(\)[^\n\w]{0,8}(?:is |returns? |gives? )?0\b",
    r"Found no NVIDIA driver",
    r"no (?:gpu|device)s? (?:found|available|detected|visible)",
    r"invalid device ordinal",
    r"No HIP GPUs",
    r"torch\.cuda\.is_available\(\) is False",
    r"does(?: not|n't) (?:see|find|detect|use) (?:the |any )?gpu",
    r"requested GPU",
    r"Invalid device",
    r"RuntimeError",
)
_NONE_LEFT = words(
    r"No CUDA GPUs are available",
    r"no CUDA-capable device is detected",
    r"No HIP GPUs are available",
)


def _find_masked_inside(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """CUDA works in a plain interpreter and is empty in the program: the program masks it."""
    del evidence
    empty, works = text.find(_NONE_LEFT), text.find(_WORKS)
    if empty and works:
        seen = (quote(empty, "in the program"), quote(works, "outside it"))
        yield Finding(id="visible_devices_hides_gpu", confidence=0.78, evidence=seen)


_SET_IN_CODE = Pattern(
    r"\bos(?:\.environ)?\s*\[\s*['\"]CUDA_VISIBLE_DEVICES['\"]\s*\]\s*=|os\.(?:putenv|environ\.setdefault|"
    r"environ\.update)\(.{0,12}CUDA_VISIBLE_DEVICES",
    re.I,
)
_IMPORTS = Pattern(
    r"\bimport\s+torch\b|from\s+torch\b|torch\.cuda\.\w+\(|import\s+(?:transformers|lightning|pytorch_lightning|"
    r"catalyst)"
)
_NO_EFFECT = words(
    r"(?:no|without|any) effect",
    r"ignor\w*",
    r"(?:still|always|consistently) (?:use\w*|run\w*|see\w*|goes|pick\w*|show\w*|on|train\w*|return\w*|allocat\w*)",
    r"does(?:n't| not) (?:work|change|take)",
    r"changes nothing",
    r"device_count\(\)\W{0,10}\d",
    r"too late",
    r"(?:gpu|cuda:) ?0\b",
    r"before (?:import\w*|torch)",
    r"after (?:import\w*|torch|cuda)",
    r"not (?:work\w*|respected|taken)",
)


_ONE_GPU = words(
    r"(?:machine|system|computer|pc|server|node|laptop|workstation|box|vm)s? (?:\w+ ){0,3}?(?:with|having|has|have) "
    r"(?:only )?(?:1|one|a single|single) (?:\w+ )?gpu\b",
    r"\b(?:1|one|single)[- ]gpu (?:machine|system|computer|pc|server|node|laptop|workstation|setup)s?\b",
    r"\bonly (?:have|has|got|having) (?:one|1|a single)\b",
)
_LISTS = ("nvidia_smi", "nvidia_smi_q", "nvidia_smi_x", "collect_env")


def _count_gpus(text: Text, evidence: Evidence) -> int:
    """How many GPUs the text says there are; 0 when it does not say: a card that is named may have brothers."""
    count = len(known(evidence.machine.gpus) or ())
    listed = evidence.reading is not None and any(kind in evidence.reading.recognised for kind in _LISTS)
    if listed or count > 1:
        return count
    return 1 if text.find(_ONE_GPU) else 0


def _find_hidden(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    if evidence.source == "machine":
        return
    environment = known(evidence.machine.environment) or {}
    count = _count_gpus(text, evidence)
    unavailable = text.find(_UNAVAILABLE)
    for name in _NAMES:
        value = environment.get(name)
        if value is None:
            continue
        fault = _fault(value.strip(), count)
        if not fault:
            continue
        origin = evidence.reading.origins.get(f"environment.{name}", "") if evidence.reading else ""
        seen = (observe(name, repr(value), origin), *((quote(unavailable, "effect"),) if unavailable else ()))
        yield Finding(
            id="visible_devices_hides_gpu",
            confidence=0.93 if unavailable else 0.6,
            severity="broken" if unavailable else "info",
            title=f"{name} {fault}",
            evidence=seen,
        )
        return


_SAID_MASK = Pattern(
    r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES\b[^\n]{0,24}\b(?:prints?|shows?|is|was|returns?|gives?|set to|equals?)\b"
    r"[^\n\w-]{0,6}(?:set to |an? )?(-1\b|empty|blank)"
)


def _find_mask_in_words(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    environment = known(evidence.machine.environment)
    if evidence.source == "machine" or environment:
        return
    mask, unavailable = text.find(_SAID_MASK), text.find(_UNAVAILABLE)
    if mask and unavailable:
        seen = (quote(mask, "mask"), quote(unavailable, "effect"))
        yield Finding(id="visible_devices_hides_gpu", confidence=0.8, evidence=seen)


def _fault(value: str, num_gpus: int) -> str:
    if value in ("", "-1", "''", '""') or value.lower() in ("none", "nodevfiles", "void"):
        return "is empty or -1, which hides every GPU"
    if re.match(r"(?i)(?:gpu|mig)-", value) or "$" in value or "{" in value or value.startswith(("<", "…", "...")):
        return ""
    parts = [p.strip() for p in value.split(",")]
    if not all(re.fullmatch(r"-?\d+", p) for p in parts):
        return f"is {value!r}, which names no device"
    if num_gpus and any(int(p) >= num_gpus or int(p) < 0 for p in parts):
        return f"names a device beyond the {num_gpus} that {'is' if num_gpus == 1 else 'are'} there"
    return ""


def _find_too_late(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    sets = text.find(_SET_IN_CODE)
    if sets is None:
        return
    before = next((m for m in text.find_all(_IMPORTS) if m.start < sets.start), None)
    without = text.find(_NO_EFFECT)
    if before or without:
        sure = 0.9 if before and without else 0.7
        seen = (quote(sets, "set in the program"), *((quote(before, "imported before"),) if before else ()))
        yield Finding(id="visible_devices_set_too_late", confidence=sure, evidence=seen)


_ORDINAL = words(
    r"invalid device ordinal",
    r"device < num_gpus",
    r"cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE\b",
    r"AssertionError: Invalid device id",
    r"Attempting to deserialize object on CUDA device \d+ but torch\.cuda\.device_count\(\) is [1-9]",
    r"(?:Invalid|No such|Unknown) (?:CUDA )?device (?:id|index|ordinal|'?cuda:\d)",
    r"You requested gpus?: \[[\d, ]+\].{0,60}your machine only has: \[\d",
    r"device (?:id|index) .{0,20}(?:out of range|must be)",
    r"nproc_per_node.{0,60}(?:larger|more|greater|exceed\w*) .{0,20}(?:gpu|device)",
    r"Invalid CUDA 'device=\S+' requested",
)
_EMPTY_MACHINE = words(r"But your machine only has: \[\]")
_CPU = words(
    r"GPU available: True.{0,20}used: False",
    r"GPU available but not used",
    r"(?:using|on|running on|device|selected)\W{0,4}(?:device\W{0,3})?\bcpu\b",
    r"CUDA:? ?(?:is )?not available.{0,60}cpu",
    r"(?:train\w*|run\w*) .{0,24}\bon (?:the )?cpu\b",
    r"device\s?[=:]\s?['\"]?cpu",
    r"falling back to cpu|defaulting to cpu",
    r"n_gpu\W{1,3}0\b",
    r"\btorch-\S+ CPU\b",
    r"\bcpu instead of\b",
    r"\bonly (?:use\w* |using |on )?(?:the |my )?cpu\b",
    r"gpu (?:usage|util\w*)[^.\n]{0,16}\b0 ?%[^.\n]{0,24}cpu",
    r"cpu[^.\n]{0,12}\b(?:9\d|100) ?%[^.\n]{0,30}gpu",
    "没有?使用 ?GPU|用的是 ?CPU|没用 ?GPU|显示(?:是|为) ?CPU|只能?用 ?CPU|CPU ?上(?:跑|运行|训练)",
)
_HAS_CARD = words(
    r"\b[RG]TX(?:\b|\d)|GeForce|Tesla|Quadro|\bA100\b|\bV100\b|\bH100\b|\bT4\b",
    r"GPU available: True",
    r"nvidia-smi",
    r"\b(?:my|the|a|have|has) gpu\b",
    r"instead of (?:the )?gpu",
    r"not (?:using |use )?(?:any of )?(?:the |on |my )?gpu",
    r"gpu (?:usage|util\w*)",
    r"\b[1-5]0[5-9]0 ?(?:ti|super)?\b",
    "使用 ?GPU",
)
_WORKS = words(
    r"\bcuda[ _](?:is[ _])?available\)?\W{0,6}(?:True|Yes)\b",
    r"is_available\(\)\W{0,4}(?:is |returns? |gives? |= )?\W{0,4}True",
)

FINDERS = (
    text_finder("visible_devices_hides_gpu", _find_hidden),
    text_finder("visible_devices_hides_gpu", _find_mask_in_words),
    text_finder("visible_devices_hides_gpu", _find_masked_inside),
    text_finder("visible_devices_set_too_late", _find_too_late),
    *finders(
        Sign(id="invalid_device_ordinal", said=_ORDINAL, sure=0.93),
        Sign(id="no_gpu_on_machine", said=_EMPTY_MACHINE, sure=0.5),
        Sign(
            id="no_gpu_on_machine",
            said=words(
                r"Found no NVIDIA driver on your system",
                r"No CUDA GPUs are available",
                r"no CUDA-capable device is detected",
                r"CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
                r"(?:no|not) (?:supported )?gpus? (?:backend )?(?:was |were )?(?:found|detected|available)",
                r"Cannot access accelerator device when none is available",
                r"No GPU/TPU found",
                r"torch\.cuda\.is_available\(\) is False",
                r"GPU available: False",
                r"No devices were found",
                r"(?:does not|doesn't|don't) have (?:a|any) (?:nvidia )?gpu",
            ),
            unless=_WORKS,
            sure=0.52,
        ),
        # a mask in front of the command, and the driver answers that it leaves nothing
        Sign(
            id="visible_devices_hides_gpu",
            said=words(
                r"CUDA_VISIBLE_DEVICES=['\"]?(?:-1|[1-9]\d*)['\"]? +(?:\S+/)?(?:python|torchrun|accelerate|deepspeed)"
            ),
            also=words(r"no CUDA-capable device is detected"),
            unless=words(r"couldn.t communicate", r"nvidia-smi\W[^\n]{0,40}(?:not found|fail)", "Driver Not Loaded"),
            sure=0.76,
        ),
        Sign(
            id="no_gpu_on_machine",
            said=words(
                r"\bcolab\b",
                r"kaggle",
                r"\bsrun\b|\bsbatch\b|\bslurm\w*",
                r"login node",
                r"Change runtime type",
                r"runtime (?:type )?(?:is )?(?:set to )?(?:none|cpu)",
                r"hardware accelerator",
                r"usage limits",
                r"codespace\w*",
                r"github actions|\bCI\b",
                r"no gpu (?:on|in) (?:this|the|my)",
                r"CPU (?:instance|runtime|node|machine)",
                "integrated graphics",
                r"(?:intel|amd) .{0,12}graphics",
            ),
            also=words(
                r"Found no NVIDIA driver",
                r"No CUDA GPUs",
                r"no CUDA-capable",
                UNAVAILABLE,
                r"gpus? (?:not|is not|isn't) (?:found|available|detected|connected)",
                r"CUDA (?:is )?not available",
                r"No devices were found",
                r"machine only has: \[\]",
                r"\bno nvidia driver",
                r"\b(?:has|finds?|sees?|got|with) no gpus?\b",
                r"nvidia-smi\W[^\n]{0,40}(?:not found|fail|no such|error)",
            ),
            unless=_WORKS,
            sure=0.75,
        ),
        # nothing fails: somebody says where they work
        Sign(
            id="no_gpu_on_machine",
            said=words(
                r"no gpu (?:on|in) (?:this|the|my)", r"(?:have|has|having|got) no gpu", r"without (?:a|any) gpu"
            ),
            unless=_WORKS,
            severity="info",
            sure=0.6,
        ),
        Sign(
            id="training_on_cpu",
            said=_CPU,
            also=_HAS_CARD,
            # the CPU's share of the work is spoken of, not the device of the model
            unless=words(
                "Out of memory: Kill",
                # CPU and GPU are compared, or the CPU was asked for
                r"\b(?:faster|slower|quicker) (?:\w+ ){0,4}(?:than|as)\b[^.\n]{0,24}\b[cg]pu",
                r"\b[cg]pu\b[^.\n]{0,40}\b(?:faster|slower|quicker) (?:than|on)\b",
                r"--no[-_]cuda\b",
                r"\btime (?:is )?(?:spent )?on (?:the )?cpu\b",
                r"\baugment\w*|\bdata ?loaders?\b",
                r"\b(?:load|pre-?process|augment|decod|transform|tokeni[sz])\w*[^.\n]{0,24}\bon (?:the )?cpu\b",
                r"\bgpu (?:runs|is|works)[^.\n]{0,12}\b[2-9]\d ?(?:- ?\d+ ?)?%",
            ),
            sure=0.66,
            severity="warning",
        ),
        Sign(
            id="training_on_cpu",
            said=words(r"GPU available: True.{0,20}used: False", r"GPU available but not used"),
            sure=0.93,
            severity="warning",
        ),
    ),
)
