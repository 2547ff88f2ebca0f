"""Which OpenMP runtime torch computes with in a process, and whether its threads spin while they wait."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpudoc.patterns import Pattern

Runtime = Literal["libgomp", "libiomp5", "libomp"]
RUNTIMES: tuple[Runtime, ...] = ("libgomp", "libiomp5", "libomp")

# the variables that say how a thread waits for the others of its team, and the two that only one kind reads
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
GNU_ALONE, _LLVM_ALONE = "GOMP_SPINCOUNT", "KMP_BLOCKTIME"
# how often a libgomp thread checks whether it may go on before it sleeps, in gpudoc's own computations; the second
# number is for CPUs on which other processes compute at the start. libgomp's default of 300,000 takes some 10 ms, lost
# while another process has the CPU of the thread that is waited for (benchmarks/spinning.py). Fewer than 10,000 would
# protect better from work that starts later, but a step that ran alone lost some 3 % with 3,000, and nothing
# measurable with 10,000
SPINS, SPINS_IN_A_CROWD = "10000", "0"
_NAME = Pattern(r"/(libgomp|libiomp5|libomp)[^/]*\.(?:so|dylib)[^/]*$")


@dataclass(frozen=True, slots=True)
class OpenMp:
    """A runtime (None if unknown), and the variables of WAITING that are set."""

    runtime: Runtime | None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_passive(self) -> bool:
        """Whether a waiting thread sleeps at once because somebody has set that."""
        if self.settings.get("OMP_WAIT_POLICY", "").strip().lower() == "passive":
            return True
        own = GNU_ALONE if self.runtime == "libgomp" else _LLVM_ALONE
        return self.settings.get(own, "").strip() == "0"

    @property
    def is_bounded(self) -> bool:
        """Whether a waiting thread spins as briefly as in gpudoc's own processes."""
        return self.runtime == "libgomp" and self.settings.get(GNU_ALONE, "").strip() == SPINS

    @property
    def is_told(self) -> bool:
        """Whether somebody has set how threads wait, by a variable that this runtime reads; `SPINS` is gpudoc's own."""
        unread = {"libgomp": _LLVM_ALONE, "libiomp5": GNU_ALONE, "libomp": GNU_ALONE}
        passed_over = {unread.get(self.runtime or ""), GNU_ALONE if self.is_bounded else None}
        return any(name not in passed_over for name in self.settings)

    @property
    def passive(self) -> dict[str, str]:
        """The environment that makes waiting threads sleep; it acts only from the start of a process."""
        gnu, llvm = {"OMP_WAIT_POLICY": "passive"}, {_LLVM_ALONE: "0"}
        if self.is_bounded:
            # a spin count overrides the policy
            gnu[GNU_ALONE] = "0"
        match self.runtime:
            case "libgomp":
                return gnu
            case "libiomp5" | "libomp":
                return llvm
            case None:
                return {**gnu, **llvm}

    @property
    def cure(self) -> str:
        """The line for a shell that lets waiting threads sleep."""
        return f"export {in_shell(self.passive)}"


def in_shell(variables: Mapping[str, str]) -> str:
    """The variables as a shell sets them, before a command or after `export`."""
    return " ".join(f"{name}={value}" for name, value in variables.items())


def openmp_of(pid: int, root: Path = Path("/proc")) -> OpenMp:
    """The runtime that a process has loaded, torch's own before any other (`grep -E 'gomp|omp' /proc/PID/maps`)."""
    try:
        rows = (root / str(pid) / "maps").read_text("utf-8", "replace").splitlines()
        entries = (root / str(pid) / "environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return OpenMp(None)
    pairs = (entry.partition("=") for entry in entries)
    return OpenMp(_first(row.split(maxsplit=5)[-1] for row in rows), {n: v for n, _, v in pairs if n in WAITING})


def own_openmp() -> OpenMp:
    """The runtime of this Python's torch, found without importing it, and this process's settings."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        found = None
    places = [] if found is None or found.origin is None else [Path(found.origin).parent]
    # wheels carry their own; conda's torch shares one with all packages of the environment
    folders = [folder for place in places for folder in (place.with_name("torch.libs"), place / "lib")]
    folders += [place.parents[2] for place in places if len(place.parents) > 2]
    files = (str(file) for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()))
    return OpenMp(_first(files), {name: os.environ[name] for name in WAITING if name in os.environ})


def missing_environment(wait_policy: str, device_type: str | None = None) -> dict[str, str]:
    """The variables that a profile's wait policy needs and this process lacks; values that somebody has set stay.

    Also empty if `device_type` ('cpu', 'cuda') is given and is not the CPU.
    """
    if wait_policy != "passive" or device_type not in (None, "cpu"):
        return {}
    found = own_openmp()
    return {} if found.is_told else found.passive


def missing_for_any(wait_policy: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The same for a command with this environment, whose torch may have any runtime."""
    found = OpenMp(None, {name: environment[name] for name in WAITING if name in environment})
    return {} if wait_policy != "passive" or found.is_told else found.passive


def _first(files: Iterable[str]) -> Runtime | None:
    named = [(file, match[1]) for file in files if (match := _NAME.search(file))]
    # other packages, such as scikit-learn, bring their own runtimes
    ordered = sorted(named, key=lambda pair: "torch" not in pair[0])
    return next((runtime for _, name in ordered for runtime in RUNTIMES if runtime == name), None)
