"""Compiles the fakes once per content: fake driver libraries and the preloaded system shim."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1", "system": "libfake-system.so"}


@functools.cache
def build() -> Path:
    """The folder with the compiled fakes, one subfolder for each; shared by all workers of a test run."""
    sources = [Path(__file__), HERE / "scenario.h", *(HERE / f"{name}.c" for name in LIBRARIES)]
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"gpudoc-fakes-{os.getuid()}-{key}"
    if place.exists():
        return place
    draft = Path(tempfile.mkdtemp(prefix="gpudoc-fakes-"))
    for name, library in LIBRARIES.items():
        folder = draft / name
        folder.mkdir()
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / library), str(HERE / f"{name}.c"), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        # in place of a library that the scenario lacks: a file that no loader takes, or the real one would be found
        (draft / f"no-{name}").mkdir()
        (draft / f"no-{name}" / library).write_text("not a library")
    # WSL's own libcuda is told from any other by its folder
    shutil.copytree(draft / "cuda", draft / "wsl")
    try:
        draft.rename(place)
    except OSError:
        shutil.rmtree(draft)
    return place
