"""PyTorch's CUDA wheels over the stand-in, each in an environment of its own, and the tests that need them.

    python -m tests.standin.environment           # every PyTorch that has a constraints file here, the first one whole
    python -m tests.standin.environment --only cuda12 -- tests/standin -x
    python -m tests.standin.environment --only cuda12 --run gpudoc doctor
    python -m tests.standin.environment --prepare # only the environments, so that the tests find them ready

An environment is made once, under the user's cache, and the stand-in in it is built again when its sources changed.
What was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.standin import build
from tests.standin.branches import PATH

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TOOLS = ("gcc", "g++", "nm", "readelf")
# what the suite's other checks need and its tests do not
NOT_NEEDED = re.compile(r"(torch|build|editables|hatchling|import-linter|mypy|ruff|types-.*)$")
RERUN = "make cuda-check"
# what a test may take, in seconds, of which each starts several commands; pytest's usual limit is for one busy CPU less
PATIENCE_S = 3600
# a worker takes a file at a time, in the order that tests/conftest.py gives; they wait for other processes, too
PARALLEL = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
# the first PyTorch runs everything, the others what the stand-in promises and one test of each command
SAMPLE = (
    *(f"tests/standin/test_{name}.py" for name in ("runtime", "memory", "faults", "nvml", "streams", "collectives")),
    "tests/standin/test_contexts.py",
    "tests/standin/test_rescue.py::test_memory_that_runs_out_late_and_with_accumulation_finds_batch_norm_as_it_was",
    "tests/standin/test_train.py::test_every_gpu_is_taken_by_one_process_and_none_by_the_launcher",
    "tests/standin/test_tune.py::test_neither_the_command_nor_the_process_that_starts_trials_holds_a_context",
)


def say(text: str) -> None:
    print(text, flush=True)


def stop(text: str) -> SystemExit:
    return SystemExit(f"cuda-check: {text}")


@dataclass(frozen=True)
class Environment:
    """One PyTorch with its environment."""

    constraints: Path

    def pinned(self, pattern: str) -> tuple[str, str]:
        """(name, version) of the pin whose name matches."""
        found = re.search(rf"^({pattern})==(\S+)", self.constraints.read_text(), re.M)
        assert found, f"{self.constraints} pins {pattern}"
        return found[1], found[2]

    @property
    def torch(self) -> str:
        """PyTorch's version."""
        return self.pinned("torch")[1]

    @property
    def folder(self) -> Path:
        """Where the environment is kept."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "gpudoc" / "standin" / self.torch

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its site-packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def pip(self, what: str, *arguments: str) -> None:
        """One step of pip's, told with the time it took; its own words only when it fails."""
        say(f"{self.torch}: {what} ...")
        began = time.monotonic()
        # a pin of the suite's own PyTorch must not reach this one: PyTorch is never resolved beside other packages
        command = (str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments)
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            said = (errors or done.stderr.splitlines() or ["pip said nothing"])[-1]
            raise stop(f"{what} failed ({said}); when the package index can be reached, type: {RERUN}")
        say(f"{self.torch}: {what}: {time.monotonic() - began:.0f} s")

    def install(self) -> None:
        """The interpreter, PyTorch's wheel alone, and the plain packages."""
        if not self.python.exists():
            say(f"{self.torch}: a new environment in {self.folder} ...")
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.folder)], check=True)
        self.pip("PyTorch's CUDA wheel", "--no-deps", f"torch=={self.torch}")
        version = (self.site / "torch" / "version.py").read_text()
        if not re.search(r"^cuda.*= '\d", version, re.M):
            raise stop(
                f"the package index gave a build of PyTorch {self.torch} without CUDA; use an index that has PyTorch's "
                f"CUDA wheels for {platform.machine()}, remove {self.folder} and type: {RERUN}"
            )
        asked = next(self.site.glob("torch-*.dist-info/METADATA")).read_text()
        plain = re.findall(r"^Requires-Dist: (?!nvidia|cuda|triton)([^;\n]+)$", asked, re.M)
        self.pip("the packages that PyTorch and gpudoc need", "-c", str(ROOT / "constraints.txt"), *plain, *needed())
        name, number = self.pinned(r"nvidia-cuda-runtime[\w-]*")
        headers = str(self.folder / "headers")
        self.pip("CUDA's headers", "--no-deps", "--upgrade", "--target", headers, f"{name}=={number}")

    def build(self) -> None:
        """The stand-in's libraries."""
        say(f"{self.torch}: building the stand-in ...")
        began = time.monotonic()
        include = next((self.folder / "headers").glob("nvidia/*/include"))
        build.build(self.site, include)
        say(f"{self.torch}: building the stand-in: {time.monotonic() - began:.0f} s")

    def stamps(self) -> dict[str, str]:
        """What each step was done from, by the name of its stamp."""
        packages = "\n".join([self.constraints.read_text(), (ROOT / "constraints.txt").read_text(), *needed()])
        sources = [HERE / "build.py", HERE / "hook.py", *sorted(HERE.glob("libraries/**/*.*"))]
        everything = b"".join(path.read_bytes() for path in sources) + packages.encode()
        return {
            "installed": hashlib.sha256(packages.encode()).hexdigest(),
            "built": hashlib.sha256(everything).hexdigest(),
        }

    def is_done(self, step: str) -> bool:
        """Whether a step was done, from what there is now."""
        stamp = self.folder / f".{step}"
        return stamp.exists() and stamp.read_text() == self.stamps()[step]

    def stamp(self, step: str) -> None:
        """Writes down that a step is done, in a new file, so that a copy by hard links keeps its own."""
        new = self.folder / f".{step}.new"
        new.write_text(self.stamps()[step])
        new.rename(self.folder / f".{step}")

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """Makes what is missing; while it is used no other run changes it, and who has the same sources uses it too."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / f"{self.torch}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            waits = False
            while not (self.is_done("installed") and self.is_done("built")):
                # who uses it now may have made it of other sources, and who makes it now of the same: not waited for
                fcntl.flock(lock, fcntl.LOCK_UN)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not waits:
                        say(f"{self.torch}: waiting for another run, which makes this or uses it as it is ...")
                    waits = True
                    time.sleep(0.2)
                else:
                    for step, make in (("installed", self.install), ("built", self.build)):
                        if not self.is_done(step):
                            make()
                            self.stamp(step)
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def run(self, *arguments: str, **more: str) -> int:
        """The exit status of a module of Python's on these GPUs, with this checkout's gpudoc."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(build.library_folder(self.site)),
            "PYTHONPATH": os.pathsep.join(paths),
            **more,
        }
        return subprocess.run([str(self.python), "-m", *arguments], check=False, env=environment).returncode

    def test(self, arguments: Sequence[str], branches: bool = False) -> int:
        """The exit status of the tests that need CUDA; with `branches` also which of gpudoc's they took."""
        cache = f"cache_dir={self.folder / 'pytest'}"
        command = (
            "pytest",
            "-m",
            "standin or gpu",
            "-o",
            cache,
            "-o",
            f"timeout={PATIENCE_S}",
            "--durations=25",
            *arguments,
        )
        if not branches:
            return self.run(*command)
        taken, missing = self.folder / "branches.taken", self.folder / "branches.txt"
        (self.site / "standin_branches.pth").write_text(PATH)
        told = {"STANDIN_BRANCHES": str(taken), "STANDIN_WATCH": str(HERE / "branches.py")}
        status = self.run(*command, **told)
        self.run("tests.standin.branches", str(taken), str(missing))
        say(f"{self.torch}: the ways not taken, in this run and those before, are in {missing}")
        return status


def needed() -> list[str]:
    """gpudoc's packages and its tests', without PyTorch and without what only lints and builds."""
    rows = [row.split(";") for row in importlib.metadata.requires("gpudoc") or []]
    extras = re.compile("""['"](?:test|train)['"]""")
    chosen = [row[0].strip() for row in rows if len(row) == 1 or extras.search(row[1])]
    return sorted(row for row in chosen if not NOT_NEEDED.match(re.split(r"[<>=\s]", row)[0]))


def require_machine() -> None:
    """Ends, with what to type, where the stand-in cannot be built."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise stop(
            f"the stand-in is built on Linux on x86_64 only; this is {platform.system()} on {platform.machine()}"
        )
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise stop(f"{', '.join(missing)} not found; type: sudo apt-get install gcc g++ binutils")


def chosen_of(only: str) -> list[tuple[Environment, tuple[str, ...]]]:
    """The environments that `only` names, all without it, each with its share of the tests; () is the whole suite.

    A constraints file from elsewhere gets the whole suite, as the first one here does.
    """
    known = sorted(HERE.glob("constraints-*.txt"))
    named = Path(only)
    files = known
    if only:
        files = [named] if named.is_file() else [HERE / f"constraints-{only}.txt"]
    if not files[0].is_file():
        names = ", ".join(path.stem.removeprefix("constraints-") for path in known)
        raise stop(f"there is no {files[0]}; --only takes {names}, or the path of such a file")
    return [(Environment(path), SAMPLE if any(map(path.samefile, known[1:])) else ()) for path in files]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="the PyTorch of constraints-NAME.txt, or of another such file")
    options.add_argument(
        "--run", nargs=argparse.REMAINDER, help="a Python module and its arguments, instead of the tests"
    )
    options.add_argument("--prepare", action="store_true", help="make what is missing, and run nothing")
    options.add_argument("--branches", action="store_true", help="also say which ways were taken by device")
    options.add_argument("pytest", nargs="*", help="arguments for pytest")
    chosen = options.parse_args()
    require_machine()
    failed = []
    for environment, share in chosen_of(chosen.only):
        everything = (*PARALLEL, *share)
        with environment.ready():
            if chosen.prepare:
                continue
            began = time.monotonic()
            tests = chosen.pytest or everything
            status = environment.run(*chosen.run) if chosen.run else environment.test(tests, chosen.branches)
            say(f"{environment.torch}: exit status {status} after {time.monotonic() - began:.0f} s")
            failed += [environment.torch] if status else []
    sys.exit(f"cuda-check: failed with PyTorch {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
