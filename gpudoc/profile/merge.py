"""Merges a new profile with the one that exists: keeps the better part of each, and says why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoc.profile import store
from gpudoc.profile.match import differences
from gpudoc.profile.model import Levers, PartFound, PartName, Profile, ProfileEvidence

PARTS: tuple[PartName, ...] = ("levers", "batch", "loader")
_IN_WORDS: Mapping[PartName, str] = {"levers": "the levers", "batch": "the batch", "loader": "the loader"}
# levers that change how much fits: a batch that was found is valid only with the same ones
_SHAPE_MEMORY = (
    "precision",
    "allocator",
    "activation_checkpointing",
    "channels_last",
    "compile",
    "compile_mode",
    "optimizer_state",
)
_OF_THE_BATCH = ("goal", "largest_batch", "fastest_batch", "memory_model", "memory_limit_bytes", "rescues")
# with more memory than this, the batch must be searched again; with less, the profile is for another machine anyway
_MORE_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The profile as its file contains it, and one sentence for each part kept from an earlier search."""

    profile: Profile
    path: Path
    kept: tuple[str, ...] = ()


def save_better(newer: Profile, path: Path, *, is_named: bool) -> Merged:
    """Write the profile to `path`, with the better parts of an earlier one for the same workload and machine.

    A file there that is for something else, or cannot be read, stays: then the profile goes to a second file in the
    same folder, unless the user named `path`.
    """
    place, older = _place_for(newer, path, is_named=is_named)
    merged, kept = (newer, ()) if older is None else merge(older, newer)
    if merged is not older:
        store.save(merged, place)
    return Merged(profile=merged, path=place, kept=kept)


def save_found(newer: Profile, out: Path | None) -> Merged:
    """Like `save_better`, into the file `out` if the user named one, else into gpudoc's own folder of profiles."""
    return save_better(newer, out or store.folder_to_write() / store.file_name(newer), is_named=out is not None)


def merge(older: Profile, newer: Profile) -> tuple[Profile, tuple[str, ...]]:
    """The better of both, part by part, and why each part of the older one is kept; `older` itself if all are."""
    reasons = {part: why for part in PARTS if (why := why_kept(older, newer, part))}
    differ = any(getattr(older.settings, name) != getattr(newer.settings, name) for name in _SHAPE_MEMORY)
    for one, other in (("levers", "batch"), ("batch", "levers")):
        if differ and one in reasons and other not in reasons:
            reasons[other] = f"it belongs to {_IN_WORDS[one]}"  # type: ignore[index]
    searched = {part for part in PARTS if found_in(older, part).tried or found_in(newer, part).tried}
    kept = tuple(_sentence(older, part, reasons[part]) for part in PARTS if part in reasons)
    if not reasons:
        return newer, ()
    if searched <= set(reasons):
        return older, kept
    return _mixed(older, newer, set(reasons), kept), kept


def why_kept(older: Profile, newer: Profile, part: PartName) -> str:
    """Why the older profile's part is kept; '' if the newer one's is taken."""
    before, now = found_in(older, part), found_in(newer, part)
    if not before.tried:
        return ""
    if not now.tried:
        return "this search tried none"
    if part != "loader" and _was_for_other(older, newer):
        return ""
    if before.times and now.times and now.times[1] > before.times[2]:
        return ""
    if now.disturbed and not before.disturbed:
        return "this search was disturbed by other work, but the earlier one was not"
    if _was_tried(newer, older, part):
        # the newer search timed the older choice too, and chose another
        return ""
    if now.tried < before.tried:
        return f"this search tried {now.tried}, the earlier one {before.tried}"
    if before.times and now.times and now.times[2] < before.times[1]:
        return (
            f"the earlier search reached {before.times[0]:.2f} times the default's speed, this one {now.times[0]:.2f}"
        )
    return ""


def _was_for_other(older: Profile, newer: Profile) -> bool:
    """Whether the older batch was chosen for another goal, or found with less memory."""
    goals = (older.evidence.goal, newer.evidence.goal)
    before, now = older.hardware.memory_bytes, newer.hardware.memory_bytes
    return (None not in goals and goals[0] != goals[1]) or bool(before and now and now > (1 + _MORE_SHARE) * before)


def found_in(profile: Profile, part: PartName) -> PartFound:
    """What a profile knows about a part; if it does not say, the answer comes from its trials."""
    evidence = profile.evidence
    known = next((found for found in evidence.parts if found.name == part), None)
    if known is not None:
        return known
    tried = {
        "levers": len(evidence.variants),
        "batch": int(evidence.largest_batch is not None or evidence.fastest_batch is not None),
        "loader": sum(row.num_workers > 0 for row in evidence.loader),
    }
    middle = evidence.speedup_over_default
    low, high = evidence.speedup_interval or (middle, middle)
    times = None if middle is None or low is None or high is None else (middle, low, high)
    at = "" if profile.made is None else profile.made.at
    return PartFound(name=part, at=at, tried=tried[part], times=times, disturbed=bool(evidence.disturbed_trials))


def _was_tried(newer: Profile, older: Profile, part: PartName) -> bool:
    """Whether the newer search timed the older one's choice of this part, too."""
    was, evidence = older.settings, newer.evidence
    if part == "loader":
        return any(row.num_workers == was.loader.num_workers for row in evidence.loader)
    if part == "batch":
        return any(row.batch == was.micro_batch and row.samples_per_s for row in evidence.trials)
    changed = {n: getattr(was, n) for n in Levers.model_fields if getattr(was, n) != getattr(newer.settings, n)}
    tried = [dict(row.changes) for row in evidence.variants if row.times is not None]
    return all(any(row.get(name) == value for row in tried) for name, value in changed.items())


def _mixed(older: Profile, newer: Profile, kept: set[PartName], sentences: tuple[str, ...]) -> Profile:
    """The newer profile with these parts of the older one; no search timed the mixture."""
    settings: dict[str, object] = {}
    evidence: dict[str, object] = {"samples_per_s": None, "speedup_over_default": None, "speedup_interval": None}
    if "levers" in kept:
        settings |= {name: getattr(older.settings, name) for name in Levers.model_fields}
        evidence["variants"] = older.evidence.variants
    if "batch" in kept:
        settings |= {"micro_batch": older.settings.micro_batch, "accumulation": older.settings.accumulation}
        evidence |= {name: getattr(older.evidence, name) for name in _OF_THE_BATCH}
    if "loader" in kept:
        settings["loader"] = older.settings.loader
        evidence["loader"] = older.evidence.loader
    evidence["parts"] = tuple(found_in(older if part in kept else newer, part) for part in PARTS)
    return newer.model_copy(
        update={
            "settings": newer.settings.model_copy(update=settings),
            "evidence": ProfileEvidence.model_validate({**dict(newer.evidence), **evidence}),
            "why": (*sentences, *newer.why),
            "script": _script(older, newer, kept),
        }
    )


def _script(older: Profile, newer: Profile, kept: set[PartName]) -> object:
    """The newer script; its `tuned` names the parts that the merged settings take from a search."""
    if newer.script is None or older.script is None:
        return newer.script
    tuned = [
        part for part in ("loader", "batch") if part in (older.script.tuned if part in kept else newer.script.tuned)
    ]
    return newer.script.model_copy(update={"tuned": tuple(tuned)})


def _sentence(older: Profile, part: PartName, why: str) -> str:
    at = found_in(older, part).at[:16].replace("T", " ")
    when = f" of {at} UTC" if at else " of an earlier search"
    return f"{_IN_WORDS[part]}{when} {'are' if part == 'levers' else 'is'} kept: {why}"


def _place_for(newer: Profile, path: Path, *, is_named: bool) -> tuple[Path, Profile | None]:
    """The path to write to, and the profile that it already holds for the same workload and machine."""
    for place in _numbered(path):
        if not place.exists():
            return place, None
        older = store.read(place)
        if older is not None and _is_for_the_same(older, newer):
            return place, older
        if is_named:
            return place, None
    raise AssertionError("unreachable")


def _is_for_the_same(older: Profile, newer: Profile) -> bool:
    if older.workload is None or newer.workload is None or (older.script is None) != (newer.script is None):
        return False
    if older.workload.command != newer.workload.command:
        return False
    return not any(difference.hard for difference in differences(older, newer.hardware, newer.workload))


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
