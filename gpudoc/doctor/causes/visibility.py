"""Find GPUs that a variable hides, by a text's statements about the devices that programs see."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Listed, by_text, quote, reported, seen_fact, words
from gpudoc.doctor.model import Evidence, Finding, Severity, Skip
from gpudoc.facts.model import Absent, Gpu, known, known_or
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import IGNORECASE, Pattern

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_UNAVAILABLE = Listed("mask-unavailable")


_SET_IN_CODE = Pattern(
    r"\bos(?:\.environ)?\s*\[\s*['\"]CUDA_VISIBLE_DEVICES['\"]\s*\]\s*=|os\.(?:putenv|environ\.setdefault|"
    r"environ\.update)\(.{0,12}CUDA_VISIBLE_DEVICES",
    IGNORECASE,
)
_IMPORTS = Pattern(
    r"\bimport\s+torch\b|from\s+torch\b|torch\.cuda\.\w+\(|import\s+(?:transformers|lightning|pytorch_lightning|"
    r"catalyst)"
)
_NO_EFFECT = Listed("mask-no-effect")


_ONE_GPU = words(
    r"(?:machine|system|computer|pc|server|node|laptop|workstation|box|vm)s? (?:\w+ ){0,3}?(?:with|having|has|have) "
    r"(?:only )?(?:1|one|a single|single) (?:\w+ )?gpu\b",
    r"\b(?:1|one|single)[- ]gpu (?:machine|system|computer|pc|server|node|laptop|workstation|setup)s?\b",
    r"\bonly (?:have|has|got|having) (?:one|1|a single)\b",
)
_LISTS = ("nvidia_smi", "nvidia_smi_q", "nvidia_smi_x", "collect_env")


def _count_gpus(text: CleanText, evidence: Evidence) -> int:
    """The number of GPUs that the text states; 0 if it does not say: a named card may not be the only one."""
    count = len(known(evidence.machine.gpus) or ())
    listed = evidence.reading is not None and any(kind in evidence.reading.recognised for kind in _LISTS)
    if listed or count > 1:
        return count
    return 1 if text.find(_ONE_GPU) else 0


def _find_hidden(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    environment = known(evidence.machine.environment) or {}
    count = _count_gpus(text, evidence)
    unavailable = text.find(_UNAVAILABLE)
    for name, mask in ((name, environment[name]) for name in MASKS if name in environment):
        fault = _fault(mask.strip(), count)
        if not fault:
            continue
        effect = (quote(unavailable, "effect"),) if unavailable else ()
        seen = (seen_fact(evidence, f"environment.{name}", repr(mask)), *effect)
        severity: Severity = "broken" if unavailable else "info"
        sure, title = 0.93 if unavailable else 0.6, f"{name} {fault}"
        yield Finding(id="visible_devices_hides_gpu", confidence=sure, severity=severity, title=title, evidence=seen)
        return


def _fault(value: str, num_gpus: int) -> str:
    if value in ("", "-1", "''", '""') or value.lower() in ("none", "nodevfiles", "void"):
        return "is empty or -1, which hides every GPU"
    if Pattern(r"(?i)(?:gpu|mig)-").match(value) or "$" in value or "{" in value or value.startswith(("<", "…", "...")):
        return ""
    parts = [p.strip() for p in value.split(",")]
    if not all(Pattern(r"-?\d+").fullmatch(p) for p in parts):
        return f"is {value!r}, which names no device"
    if num_gpus and any(int(p) >= num_gpus or int(p) < 0 for p in parts):
        return f"names a device beyond the {num_gpus} that {'is' if num_gpus == 1 else 'are'} there"
    return ""


def read_mask(mask: str, gpus: tuple[Gpu, ...]) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that a mask names, and the first entry that names no GPU or one twice: CUDA stops reading there.

    The name of a MIG instance cannot be checked against whole GPUs, and neither can a UUID if theirs are unknown.
    """
    chosen: list[Gpu] = []
    no_uuids = all(isinstance(gpu.uuid, Absent) for gpu in gpus)
    for entry in (part.strip() for part in mask.split(",")):
        number, uuid = int(entry) if entry.isdecimal() else None, entry.startswith("GPU-")
        named = [gpu for gpu in gpus if gpu.index == number or (uuid and known_or(gpu.uuid, "").startswith(entry))]
        if len(named) == 1 and named[0] not in chosen:
            chosen += named
        elif not (entry.startswith("MIG-") or (uuid and no_uuids)):
            return tuple(chosen), entry
    return tuple(chosen), ""


def _find_too_late(text: CleanText) -> Iterator[Finding | Skip]:
    sets = text.find(_SET_IN_CODE)
    if sets is None:
        return
    before = next((m for m in text.find_all(_IMPORTS) if m.start < sets.start), None)
    without = text.find(_NO_EFFECT)
    if before or without:
        sure = 0.9 if before and without else 0.7
        seen = (quote(sets, "set in the program"), *((quote(before, "imported before"),) if before else ()))
        yield Finding(id="visible_devices_set_too_late", confidence=sure, evidence=seen)


FINDERS = (
    reported("visible_devices_hides_gpu", _find_hidden, though_it_works=True),
    by_text("visible_devices_set_too_late", _find_too_late),
)
