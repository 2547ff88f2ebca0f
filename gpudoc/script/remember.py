"""Finds the profile of a tuned command: by its words without paths, on this kind of machine."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Gpu, Machine, known
from gpudoc.patterns import Pattern
from gpudoc.profile import store
from gpudoc.profile.match import FieldDifference, differences
from gpudoc.profile.model import Hardware, Profile, WorkloadKey

BATCH = "{batch}"
# a run's length, output folder and name change neither the memory nor the speed of a step
_IDLE_OPTION = Pattern(
    r"--?(?:(?:num|n|max|total)[-_])*(?:train[-_])?(?:epochs?|steps|iters|iterations)"
    r"|--?seed|--?(?:out|output|log|logging|save|ckpt|checkpoint)(?:[-_](?:dir|path|folder|file))?|--?run[-_]name"
)
_PYTHON = Pattern(r"(?:python|pypy)[\d.]*(?:\.exe)?")
_NUMBER = Pattern(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The profile of a command, and one sentence about it; `batch_word` is the index of the word with tune's {batch}.

    `passed_over` says why other profiles of the same script were not used.
    """

    profile: Profile
    path: Path
    sentence: str
    batch_word: int | None = None
    passed_over: tuple[str, ...] = ()


def fingerprint(command: Sequence[str]) -> str:
    """A digest of the command's words, without paths and without options that change neither memory nor speed."""
    return hashlib.sha256("\0".join(_words(command)).encode()).hexdigest()[:16]


def script_file(command: Sequence[str]) -> Path | None:
    """The first word that is a Python file; None for `-m module`, a shell's text or an entry point."""
    return next((Path(word) for word in command if word.endswith(".py") and Path(word).is_file()), None)


def script_name(command: Sequence[str]) -> str:
    """The usual name of the script: 'train.py', the module after -m, else the last path component of the command."""
    file = next((word for word in command if word.endswith(".py")), None)
    if file is not None:
        return Path(file).name
    words = list(command)
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return Path(command[0]).name


def file_digest(command: Sequence[str]) -> str:
    """A digest of the script's own file; "" if there is no readable file."""
    file = script_file(command)
    try:
        return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def workload_of(command: Sequence[str]) -> WorkloadKey:
    """The command as the workload of a profile: the script's name, and the command's digest as model and command."""
    print_of = fingerprint(command)
    return WorkloadKey(config=script_name(command), model=f"script-{print_of}", command=print_of)


def hardware_of(machine: Machine, *, device: str, torch: str = "", limit_bytes: int | None = None) -> Hardware:
    """This kind of machine as a profile names it; memory is the card's or, on a CPU, the given limit or the host's."""
    host, build = machine.host, machine.torch
    common = {
        "torch": torch or known(build.version) or "",
        "cpu_cores": known(host.cpus_usable),
        "ram_bytes": known(host.memory_total_bytes),
        "shm_bytes": known(host.shm_total_bytes),
    }
    if device == "cpu":
        memory = limit_bytes or known(host.memory_total_bytes)
        return Hardware.model_validate(
            {"device": "cpu", "name": known(host.cpu_model) or "", "memory_bytes": memory, **common}
        )
    gpu = gpu_at(int(device.partition(":")[2] or 0), machine) or Gpu(index=0)
    found = {
        "name": known(gpu.name) or "",
        "capability": known(gpu.capability),
        "memory_bytes": known(gpu.memory_total_bytes),
        "power_limit_w": known(gpu.power_limit_w),
        "driver": known(machine.driver.module_version),
    }
    return Hardware.model_validate({"device": "cuda", **found, **common})


def remembered(command: Sequence[str], here: Hardware, asked: str = "auto") -> Remembered | None:
    """The profile for --profile auto or a file; None if auto finds none, GpudocError if a file does not fit."""
    if asked != "auto":
        return _named(command, here, Path(asked))
    passed_over: list[str] = []
    for entry in store.tuned_profiles():
        if isinstance(entry, store.Unreadable):
            passed_over.append(f"{entry.path.name}: not used: {entry.reason}")
            continue
        profile = entry.profile
        if profile.script is None or profile.workload is None or profile.workload.config != script_name(command):
            continue
        place = _place_of_batch(command, profile)
        if place is None:
            passed_over.append(f"{entry.path.name}: not used: made for other arguments of {profile.workload.config}")
            continue
        found = _differences(profile, here)
        hard = [str(difference) for difference in found if difference.hard]
        if hard:
            passed_over.append(f"{entry.path.name}: not used: {'; '.join(hard)}")
            continue
        return _as_remembered(command, profile, entry.path, tuple(passed_over))
    return None


def _named(command: Sequence[str], here: Hardware, path: Path) -> Remembered:
    profile = store.load(path)
    hint = f"gpudoc tune -- {shlex.join(command)}"
    if profile.script is None:
        raise GpudocError(f"{path}: this profile belongs to a config, not to a command", hint=hint)
    hard = [str(difference) for difference in _differences(profile, here) if difference.hard]
    if _place_of_batch(command, profile) is None:
        name = profile.workload.config if profile.workload else "another script"
        hard.insert(0, f"another command, or other arguments ({name})")
    if hard:
        raise GpudocError(f"{path}: made for something else: {'; '.join(hard)}", hint=hint)
    return _as_remembered(command, profile, path, ())


def _as_remembered(command: Sequence[str], profile: Profile, path: Path, passed_over: tuple[str, ...]) -> Remembered:
    hardware, script = profile.hardware, profile.script
    assert script is not None
    changed = script.file and file_digest(command) not in ("", script.file)
    note = "; the script has changed since then, so tune again if data or model changed" if changed else ""
    place = _place_of_batch(command, profile)
    return Remembered(
        profile=profile,
        path=path,
        sentence=f"profile {path.name}, made on {hardware.name or hardware.device} with torch {hardware.torch}{note}",
        batch_word=place if place is not None and place >= 0 else None,
        passed_over=passed_over,
    )


def _place_of_batch(command: Sequence[str], profile: Profile) -> int | None:
    """The index of the word where the profile's command had {batch}, -1 if it had none; None for another command."""
    wanted = profile.workload.command if profile.workload else None
    for place, spelled in _spellings(command):
        if fingerprint(spelled) == wanted:
            return place
    return None


def _spellings(command: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The command itself, then with {batch} in place of each number in it."""
    yield next((i for i, word in enumerate(command) if BATCH in word), -1), list(command)
    for place, word in enumerate(command):
        for number in _NUMBER.finditer(word):
            spelled = word[: number.start()] + BATCH + word[number.end() :]
            yield place, [*command[:place], spelled, *command[place + 1 :]]


def _differences(profile: Profile, here: Hardware) -> tuple[FieldDifference, ...]:
    """The differences to this machine, without the command; torch counts if it is known without starting the script."""
    there = profile.hardware
    known = here.model_copy(update={"count": there.count, "cuda": there.cuda, "torch": here.torch or there.torch})
    assert profile.workload is not None
    return differences(profile, known, profile.workload)


def _words(command: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skips_value = False
    for word in command:
        if skips_value and not word.startswith("-"):
            skips_value = False
            continue
        skips_value = False
        name, equals, _ = word.partition("=")
        if _IDLE_OPTION.fullmatch(name):
            skips_value = not equals
            continue
        plain = word if word.startswith("-") and "/" not in word else _without_path(word)
        kept.append("python" if _PYTHON.fullmatch(plain) else plain)
    return kept


def _without_path(word: str) -> str:
    name, equals, value = word.rpartition("=")
    return name + equals + (Path(value).name if "/" in value else value)
