"""The entry point of this package: examines all parts of the machine at once, each with a deadline, in one record."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoc.facts import assemble, children, system
from gpudoc.facts.children import Child
from gpudoc.facts.container import ROOT
from gpudoc.facts.environment import read_environment
from gpudoc.facts.files import list_names
from gpudoc.facts.model import Absent, Machine
from gpudoc.progress import SILENT, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that each part may take; the parts run in parallel, so the longest one limits the whole.

    Parts that ask the driver get `gpu_s` more for each GPU after the first, and each answer restarts their deadline.
    """

    torch_s: float = 13.0
    driver_s: float = 8.0
    files_s: float = 5.0
    # without persistence mode the driver starts each GPU when it is asked: "1-3 second startup cost per GPU"
    # (docs.nvidia.com/deploy/driver-persistence), and other questions wait meanwhile
    gpu_s: float = 4.0


# each worker is a separate process, so that a hang in one does not affect the others
_WORKERS: Mapping[str, tuple[str, ...]] = {
    "nvml": ("nvml",),
    "cuda": ("cuda",),
    "files": ("host", "container", "driver", "pci", "nodes", "amd"),
    "slow_files": ("disk", "kernel_log"),
}
# the workers on systems without /proc, /sys and /dev; macOS has had no NVIDIA driver since 10.13
_WITHOUT_LINUX: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "win32": {"nvml": ("nvml",), "cuda": ("cuda",), "files": ("system",), "slow_files": ("disk",)},
    "darwin": {"files": ("system",), "slow_files": ("disk",)},
}
_DRIVER_WORKERS = ("nvml", "cuda", "files")
# how many deadlines a driver may take in total while it keeps answering
_HEARD_OUT = 3.0


def collect(
    *,
    quick: bool = False,
    python: Path | None = None,
    root: Path = ROOT,
    deadlines: Deadlines = Deadlines(),
    progress: Progress = SILENT,
    meanwhile: Callable[[], object] = bool,
) -> Machine:
    """The machine as it is now, in at most the longest deadline; an unanswered fact is Absent with the reason.

    `quick` reads torch's build from its files and imports nothing. `python` is the Python to examine, by default that
    of $VIRTUAL_ENV or $CONDA_PREFIX, else gpudoc's own. `root` is the folder that contains /proc, /sys and /dev.
    `meanwhile` is called after all questions are sent and before the first answer is awaited.
    """
    workers = _WITHOUT_LINUX.get(sys.platform, _WORKERS)
    began = time.monotonic()
    examined = python or examined_python(os.environ)
    starting_s = deadlines.gpu_s * max(0, _num_gpus(root) - 1)
    running = [_start_examined(examined, quick, deadlines, starting_s)]
    driver_s = deadlines.driver_s + starting_s
    limits = {name: driver_s if name in _DRIVER_WORKERS else deadlines.files_s for name in workers}
    most = dict.fromkeys(_DRIVER_WORKERS, _HEARD_OUT * driver_s)
    running += children.start_workers(workers, root, limits, most)
    told: dict[str, Child] = {}

    def hear(child: Child) -> None:
        told[child.name] = child
        progress.advance(len(told), len(running), child.failure or f"{child.name}: {child.seconds:.2f} s")
        if {"nvml", "cuda"} <= told.keys() and "torch" not in told and child.name in ("nvml", "cuda"):
            running[0].answer(json.dumps(assemble.tryable_devices(told["nvml"], told["cuda"])))

    if "cuda" not in workers:
        running[0].answer("[]")
    try:
        meanwhile()
        children.listen(running, hear)
    finally:
        for child in running:
            if not child.done:
                child.finish(failure="interrupted")
                child.close()
    environment = read_environment(os.environ)
    elsewhere = "" if workers is _WORKERS else f"not asked on {system.NAME}"
    machine = assemble.machine_from(tuple(told.values()), environment, quick=quick, unasked=elsewhere)
    return assemble.with_total(machine, time.monotonic() - began)


def examined_python(environment: Mapping[str, str]) -> Path:
    """The Python whose torch is examined by default: the active environment's, else gpudoc's own."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        for name in ("python.exe", "Scripts/python.exe") if sys.platform == "win32" else ("bin/python", "bin/python3"):
            if prefix and (Path(prefix) / name).exists():
                return Path(prefix) / name
    return Path(sys.executable)


def _num_gpus(root: Path) -> int:
    """The number of GPUs that NVIDIA's driver lists; 0 if it lists none."""
    names = list_names(root, "proc/driver/nvidia/gpus")
    return 0 if isinstance(names, Absent) else len(names)


def _start_examined(python: Path, quick: bool, deadlines: Deadlines, starting_s: float) -> Child:
    deadline = deadlines.files_s if quick else deadlines.torch_s + starting_s
    return children.start_examined(python, quick=quick, environment=dict(os.environ), deadline_s=deadline)
