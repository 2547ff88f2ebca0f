"""Profiles on disk: where gpudoc looks for them, and how it reads and writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gpudoc.errors import GpudocError
from gpudoc.patterns import Pattern
from gpudoc.profile.model import SCHEMA, Profile
from gpudoc.reading import UnreadableError
from gpudoc.writing import write_whole
from gpudoc.yaml_files import dump_yaml, read_yaml

LOCAL_FOLDER = Path(".gpudoc") / "profiles"
# a folder that came with a repository may hold any number: only the newest are read
_MOST_PROFILES = 200
_ELSEWHERE = "choose another place: --out FILE"


@dataclass(frozen=True, slots=True)
class Stored:
    """A profile and its file."""

    profile: Profile
    path: Path


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A profile file that cannot be used, and why; gpudoc neither crashes on it nor overwrites it."""

    path: Path
    reason: str


def user_folder() -> Path:
    """The user's own folder for profiles: $GPUDOC_PROFILE_DIR, else gpudoc/profiles under $XDG_DATA_HOME."""
    chosen = os.environ.get("GPUDOC_PROFILE_DIR")
    if chosen:
        return Path(chosen)
    data_home = os.environ.get("XDG_DATA_HOME")
    base = Path(data_home) if data_home else Path.home() / ".local" / "share"
    return base / "gpudoc" / "profiles"


def shipped_folder() -> Path:
    """The presets: inside the installed package, or next to it in a checkout and an editable install."""
    package = Path(__file__).resolve().parents[1]
    packed = package / "_profiles"
    return packed if packed.is_dir() else package.parent / "profiles"


def folder_to_write() -> Path:
    """Where `tune` writes: `.gpudoc/profiles` here if it exists, else the user's folder."""
    return LOCAL_FOLDER if LOCAL_FOLDER.is_dir() else user_folder()


def tuned_profiles() -> Iterator[Stored | Unreadable]:
    """Every measured profile that `--profile auto` may use, the nearest folder and the newest file first."""
    for folder in (LOCAL_FOLDER, user_folder()):
        yield from _read_folder(folder)


def presets() -> Iterator[Stored]:
    """The shipped presets, by name."""
    for entry in _read_folder(shipped_folder()):
        if isinstance(entry, Stored) and entry.profile.is_preset:
            yield entry


def load(path: Path) -> Profile:
    """The profile in `path`; GpudocError says what is wrong if it cannot be used."""
    outcome = _read(path)
    if isinstance(outcome, Unreadable):
        raise GpudocError(
            f"{path}: {outcome.reason}", hint="create one with: gpudoc tune --model cfg.yaml --out profile.yaml"
        )
    return outcome.profile


def read(path: Path) -> Profile | None:
    """The profile in `path`; None if there is none or it cannot be read."""
    outcome = _read(path)
    return outcome.profile if isinstance(outcome, Stored) else None


def save(profile: Profile, path: Path) -> Path:
    """Write `profile` to `path`, whole or not at all; GpudocError when the place cannot be written."""
    text = f"# Made by gpudoc tune; gpudoc train --profile {path.name} uses it.\n"
    text += dump_yaml(profile.document(), width=110)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise GpudocError(f"{path}: its folder cannot be created: {problem.strerror}", hint=_ELSEWHERE) from None
    return write_whole(path, text, hint=_ELSEWHERE)


def file_name(profile: Profile) -> str:
    """A readable file name: workload, device, memory and torch, without anything that names this very machine."""
    hardware = profile.hardware
    size = f"-{round(hardware.memory_bytes / 2**30)}GiB" if hardware.memory_bytes else ""
    config = profile.workload.config if profile.workload else "preset"
    model = f"-{profile.workload.model}" if profile.workload else ""
    stem = f"{config}--{hardware.name or hardware.device}{size}-x{hardware.count}--torch{hardware.torch}{model}"
    return Pattern(r"[^A-Za-z0-9.+_-]+").sub("-", stem) + ".yaml"


def _read_folder(folder: Path) -> list[Stored | Unreadable]:
    try:
        paths = sorted(folder.glob("*.yaml"), key=lambda path: (-path.stat().st_mtime, path.name))
    except OSError:
        return []
    return [_read(path) for path in paths[:_MOST_PROFILES]]


def _read(path: Path) -> Stored | Unreadable:
    try:
        data = read_yaml(path, "profile").data
    except UnreadableError as problem:
        return Unreadable(path, problem.reason)
    return _check(path, data)


def _check(path: Path, data: object) -> Stored | Unreadable:
    if not isinstance(data, dict):
        return Unreadable(path, "not a mapping, and so not a profile")
    schema = str(data.get("schema"))
    if schema != SCHEMA:
        newer = schema.startswith("gpudoc.profile.v")
        return Unreadable(path, f"schema {schema}, newer than this gpudoc" if newer else "not a gpudoc profile")
    try:
        return Stored(Profile.model_validate_json(json.dumps(data)), path)
    except ValidationError as problem:
        rows = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in problem.errors(include_url=False)]
        return Unreadable(path, "; ".join(rows[:5]))
    except (TypeError, ValueError, RecursionError) as problem:
        return Unreadable(path, f"not a profile: {problem}")
