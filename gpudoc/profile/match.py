"""Finds the profile that fits this machine and workload, or else the nearest preset, and says why in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpudoc.patterns import Pattern
from gpudoc.profile.model import Hardware, Profile, WorkloadKey
from gpudoc.profile.store import Stored, Unreadable, presets, tuned_profiles
from gpudoc.units import GIB, format_bytes

Kind = Literal["tuned", "preset"]
_MEMORY_STEP_BYTES = GIB // 2
_COUNT = "number of devices"
# fields whose values mean nothing to a person
_BY_FINGERPRINT = {
    "model": "it was made for a different model (other layers, sizes or input)",
    "data set": "the data set is a different one, or has changed",
}


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that differs; a hard difference makes the profile unusable, a soft one asks for a check."""

    field: str
    there: str
    here: str
    hard: bool

    def __str__(self) -> str:
        if self.field in _BY_FINGERPRINT:
            return _BY_FINGERPRINT[self.field]
        return f"{self.field} {self.there} there, {self.here} here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The profile to use, and the sentence that explains it; `check` asks to watch it in the first steps."""

    kind: Kind
    profile: Profile
    path: Path
    sentence: str
    check: bool
    passed_over: tuple[str, ...] = field(default_factory=tuple)


def match(here: Hardware, workload: WorkloadKey) -> Match | None:
    """The best profile for this machine and workload: a tuned one, else the nearest preset; None without either."""
    passed_over: list[str] = []
    for entry in tuned_profiles():
        if isinstance(entry, Unreadable):
            passed_over.append(f"{entry.path.name}: not used: {entry.reason}")
            continue
        if entry.profile.is_preset or entry.profile.workload is None or entry.profile.script is not None:
            continue
        found = differences(entry.profile, here, workload)
        if not any(difference.hard for difference in found):
            return _tuned(entry, found, tuple(passed_over))
        if _is_about(entry.profile, workload):
            hard = "; ".join(str(difference) for difference in found if difference.hard)
            passed_over.append(f"{entry.path.name}: not used: {hard}{ranks_hint(entry.profile, found)}")
    return _nearest_preset(here, workload, tuple(passed_over))


def explain(profile: Profile, here: Hardware, workload: WorkloadKey) -> tuple[FieldDifference, ...]:
    """Every difference between a named profile and this machine and workload; empty for a perfect fit or a preset."""
    return () if profile.is_preset else differences(profile, here, workload)


def differences(profile: Profile, here: Hardware, workload: WorkloadKey) -> tuple[FieldDifference, ...]:
    """The fields that differ between the profile and this machine and workload, the hard differences first."""
    there = profile.hardware
    found = [
        *_compare(True, ("device", there.device, here.device)),
        *_compare(here.device == "cuda", ("device name", plain_name(there.name), plain_name(here.name))),
        *_compare(True, ("torch", there.torch, here.torch), ("CUDA", there.cuda, here.cuda)),
        *_compare(True, (_COUNT, there.count, here.count)),
        *_memory_difference(there, here),
        *_workload_differences(profile.workload, workload),
        *_compare(False, ("driver", there.driver, here.driver), ("CPU cores", there.cpu_cores, here.cpu_cores)),
        *_compare(False, ("instruction set", there.instructions, here.instructions)),
        *_compare(False, ("power limit", there.power_limit_w, here.power_limit_w)),
        *_size_difference("RAM", there.ram_bytes, here.ram_bytes),
        *_size_difference("/dev/shm", there.shm_bytes, here.shm_bytes),
    ]
    return tuple(sorted(found, key=lambda difference: not difference.hard))


def ranks_hint(profile: Profile, found: Sequence[FieldDifference]) -> str:
    """A hint at the option that makes the profile fit if only the number of processes rules it out; else ''."""
    hard = [difference.field for difference in found if difference.hard]
    return f"; --gpus {profile.hardware.count} would use it" if hard == [_COUNT] else ""


def plain_name(name: str) -> str:
    """A device name without vendor and punctuation, since one card is spelled in several ways: 'H100 80GB HBM3'."""
    words = Pattern(r"[^A-Za-z0-9]+").sub(" ", name).split()
    return " ".join(word.upper() for word in words if word.upper() not in ("NVIDIA", "TESLA", "AMD", "R", "TM", "CPU"))


def _compare(hard: bool, *fields: tuple[str, object, object]) -> list[FieldDifference]:
    return [FieldDifference(name, _text(a), _text(b), hard) for name, a, b in fields if a != b and _known(a, b, hard)]


def _known(there: object, here: object, hard: bool) -> bool:
    """Whether the field counts: a soft field does not if one side does not know it; a hard one always does."""
    return hard or (there not in (None, "") and here not in (None, ""))


def _memory_difference(there: Hardware, here: Hardware) -> list[FieldDifference]:
    if there.memory_bytes is None or here.memory_bytes is None:
        return []
    apart = here.memory_bytes - there.memory_bytes
    hard = abs(apart) >= _MEMORY_STEP_BYTES if here.device != "cpu" else apart < -there.memory_bytes // 20
    soft = here.device == "cpu" and abs(apart) >= _MEMORY_STEP_BYTES
    if not hard and not soft:
        return []
    return [FieldDifference("memory", format_bytes(there.memory_bytes), format_bytes(here.memory_bytes), hard)]


def _size_difference(name: str, there: int | None, here: int | None) -> list[FieldDifference]:
    if there is None or here is None or abs(there - here) < max(there, here) // 10:
        return []
    return [FieldDifference(name, format_bytes(there), format_bytes(here), False)]


def _workload_differences(there: WorkloadKey | None, here: WorkloadKey) -> list[FieldDifference]:
    if there is None:
        return []
    return [
        *_compare(True, ("model", there.model, here.model), ("optimizer", there.optimizer, here.optimizer)),
        *_compare(True, ("input shapes", there.inputs, here.inputs)),
        *_compare(False, ("data set", there.data, here.data)),
    ]


def _is_about(profile: Profile, workload: WorkloadKey) -> bool:
    return profile.workload is not None and workload.config == profile.workload.config


def _tuned(entry: Stored, found: tuple[FieldDifference, ...], passed_over: tuple[str, ...]) -> Match:
    hardware = entry.profile.hardware
    where = f"made on {hardware.title} with torch {hardware.torch}"
    note = "everything else is the same"
    if found:
        note = "; ".join(str(difference) for difference in found) + ": checked in the first steps"
    cut = interrupted(entry.profile)
    note += f". {cut}" if cut else ""
    return Match(
        kind="tuned",
        profile=entry.profile,
        path=entry.path,
        sentence=f"profile {entry.path.name}, {where}; {note}",
        check=bool(found),
        passed_over=passed_over,
    )


def interrupted(profile: Profile) -> str:
    """A note for the user if the profile's search was interrupted; else ''."""
    made = profile.made
    if made is None or not made.interrupted:
        return ""
    return f"Its search was interrupted after {made.trials} trials, so better settings may exist; run gpudoc tune again"


def _nearest_preset(here: Hardware, workload: WorkloadKey, passed_over: tuple[str, ...]) -> Match | None:
    same = [entry for entry in presets() if entry.profile.hardware.device == here.device]
    if not same:
        return None
    size: Callable[[Stored], int] = lambda entry: entry.profile.hardware.memory_bytes or 0  # noqa: E731
    fitting = [entry for entry in same if size(entry) <= (here.memory_bytes or 0) + _MEMORY_STEP_BYTES]
    chosen = max(fitting, key=size) if fitting else min(same, key=size)
    return Match(
        kind="preset",
        profile=chosen.profile,
        path=chosen.path,
        sentence=(
            f"no tuned profile for {workload.config} here; starting from the shipped preset {chosen.path.stem}, which "
            f"is only estimated. To tune it: gpudoc tune --model {_source(workload.config)}"
        ),
        check=True,
        passed_over=passed_over,
    )


def _source(config: str) -> str:
    return config if config in ("quickstart", "images") else f"{config}.yaml"


def _text(value: object) -> str:
    return "unknown" if value in (None, "") else f"{value:g}" if isinstance(value, float) else str(value)
