"""The settings that a run of a command takes from its profile, and the sentences that name them and their source."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.patterns import Pattern
from gpudoc.process.openmp import in_shell, missing_for_any
from gpudoc.profile import store
from gpudoc.profile.model import Profile
from gpudoc.script.messages import HookOrder, LoaderOrder
from gpudoc.script.remember import BATCH, Remembered, fingerprint, hardware_of, remembered, script_name

_NUMBER = Pattern(r"\d+")
_PYTHON = Pattern(r"(?:python|pypy)[\d.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The command as it is started, the order for the inside, sentences about both, and the profile's file name.

    `environment` are variables for its start in addition to those of this process.
    """

    words: tuple[str, ...]
    order: HookOrder
    profile: str | None = None
    sentences: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def apply(words: Sequence[str], *, profile: str, allow_batch: bool) -> Applied:
    """Take the settings for this command from `profile` (auto, off or a file); its batch only with `allow_batch`.

    GpudocError for a file that does not fit the command, and for a {batch} without a number for it.
    """
    found = None if profile == "off" else _find(words, profile)
    if found is None:
        if any(BATCH in word for word in words):
            raise GpudocError(
                f"the command contains {BATCH}, and no profile gives a number for it",
                hint=f"gpudoc tune -- {shlex.join(words)}; or write the number",
            )
        why = "no profile" if profile == "off" else "no profile fits (gpudoc tune -- COMMAND creates one)"
        own = HookOrder(purpose="run")
        return Applied(words=tuple(words), order=own, sentences=(f"{why}: the script's own settings",))
    return _apply(tuple(words), found, allow_batch)


def _find(words: Sequence[str], asked: str) -> Remembered | None:
    """The profile; facts of the machine are only collected if there is a profile for such a script."""
    if asked == "auto" and not any(_is_about(entry, words) for entry in store.tuned_profiles()):
        return None
    from gpudoc import facts
    from gpudoc.facts.model import Absent

    program = shutil.which(words[0])
    python = Path(program) if program and _PYTHON.fullmatch(Path(program).name) else None
    machine = facts.collect(quick=True, python=python)
    on_gpu = not isinstance(machine.gpus, Absent) and bool(machine.gpus)
    here = hardware_of(machine, device="cuda" if on_gpu else "cpu")
    # the torch that a launcher's script will import is not known
    return remembered(words, here if python else here.model_copy(update={"torch": ""}), asked)


def _is_about(entry: store.Stored | store.Unreadable, words: Sequence[str]) -> bool:
    if isinstance(entry, store.Unreadable):
        return False
    workload = entry.profile.workload
    return entry.profile.script is not None and workload is not None and workload.config == script_name(words)


def _apply(words: tuple[str, ...], found: Remembered, allow_batch: bool) -> Applied:
    profile, script, source = found.profile, found.profile.script, f"profile {found.path.name}"
    assert script is not None
    said = [f"{found.sentence}", *found.passed_over]
    training = [loader for loader in script.loaders if loader.role == "training" and loader.key]
    keys = tuple(dict.fromkeys(loader.key for loader in training))
    order = HookOrder(purpose="run", keys=keys)
    if "loader" in script.tuned and keys:
        loader = _loader_order(profile)
        order = order.model_copy(update={"loader": loader})
        settings = ", ".join(f"{name} {value}" for name, value in loader.model_dump(exclude_none=True).items())
        said.append(f"{training[0].at}: {settings} ({source})")
    batch, own = profile.settings.micro_batch, next((loader.batch_size for loader in training), None)
    if "batch" not in script.tuned or script.lever == "none":
        if any(BATCH in word for word in words):
            raise GpudocError(f"the command contains {BATCH}, and {source} gives no batch", hint="write the number")
    elif script.lever == "flag":
        words = _with_batch(words, found, batch, allow_batch, said)
    elif allow_batch and keys:
        order = order.model_copy(update={"batch": batch})
        said.append(f"{training[0].at}: batch_size {batch}, the script says {own} (--allow batch, {source})")
    elif batch != own:
        said.append(_offer(batch, source))
    waits = missing_for_any(profile.settings.wait_policy, os.environ)
    if waits:
        said.append(f"threads sleep while they wait: {in_shell(waits)} ({source})")
    return Applied(words=words, order=order, profile=found.path.name, sentences=tuple(said), environment=waits)


def _loader_order(profile: Profile) -> LoaderOrder:
    loader = profile.settings.loader
    works = loader.num_workers > 0
    return LoaderOrder(
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor if works else None,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers if works else None,
    )


def _with_batch(
    words: tuple[str, ...], found: Remembered, batch: int, allow_batch: bool, said: list[str]
) -> tuple[str, ...]:
    """The command with the profile's batch in the place of tune's {batch}, if that is allowed."""
    place, source = found.batch_word, f"profile {found.path.name}"
    if place is None:
        return words
    word = words[place]
    if BATCH in word and not allow_batch:
        raise GpudocError(
            f"the command contains {BATCH}, but gpudoc sets a batch only if you allow it",
            hint=f"--allow batch inserts {batch}, from {source}; or write the number",
        )
    spelled = word.replace(BATCH, str(batch)) if BATCH in word else _respelled(words, place, found, batch)
    if spelled == word:
        return words
    if not allow_batch:
        said.append(_offer(batch, source))
        return words
    said.append(f"{spelled} instead of {word} (--allow batch, {source})")
    return (*words[:place], spelled, *words[place + 1 :])


def _respelled(words: tuple[str, ...], place: int, found: Remembered, batch: int) -> str:
    """The word with the batch in place of its number that was {batch} in the profile's command."""
    word, wanted = words[place], found.profile.workload.command if found.profile.workload else None
    for number in _NUMBER.finditer(word):
        before, after = word[: number.start()], word[number.end() :]
        if fingerprint([*words[:place], f"{before}{BATCH}{after}", *words[place + 1 :]]) == wanted:
            return f"{before}{batch}{after}"
    return word


def _offer(batch: int, source: str) -> str:
    return (
        f"{source} has batch {batch}, which changes the training; to use it: --allow batch, and check the learning rate"
    )
