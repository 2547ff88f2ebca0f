"""Installs the build of PyTorch that this machine's GPU and driver run, from gpudoc's own tables, and then gpudoc.

    python -m benchmarks.gpu_check.wheel [--show]

`make gpu-check` runs it in its environment, where gpudoc itself is installed already; a torch that fits stays.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoc import facts
from gpudoc.doctor.model import Evidence, Setting
from gpudoc.doctor.setting import describe
from gpudoc.facts.model import Absent, Machine
from gpudoc.knowledge.compatibility import archs_of, wheel_for
from gpudoc.knowledge.drivers import driver_runs_cuda
from gpudoc.knowledge.wheels import fit

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
COMPANIONS = ("torchvision", "torchaudio")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What pip installs, '' where no wheel fits, and why."""

    arguments: Sequence[str]
    reason: str


def choose(setting: Setting) -> Choice:
    """The newest wheel for the GPU and the driver; the release is that of constraints.txt where it is still built."""
    if setting.capability is None or setting.driver_cuda is None:
        return Choice(arguments=(), reason="the driver names no GPU here; gpudoc doctor says why")
    capability, driver = (".".join(map(str, pair)) for pair in (setting.capability, setting.driver_cuda))
    known = f"a GPU of capability {capability} and a driver for CUDA {driver}"
    wheel = wheel_for(setting.capability, setting.driver_cuda)
    if wheel is None:
        return Choice(arguments=(), reason=f"no PyTorch wheel runs on {known}: update the driver first")
    release = re.search(r"^torch==(\S+)", CONSTRAINTS.read_text(), re.M)
    assert release is not None
    words = [word for word in wheel.arguments.split() if not word.startswith(COMPANIONS)]
    words = [f"torch=={release[1]}" if word == "torch" else word for word in words]
    return Choice(arguments=words, reason=f"{known}: PyTorch's build for CUDA {'.'.join(map(str, wheel.cuda))}")


def fits(machine: Machine, setting: Setting) -> bool:
    """Whether the torch that is installed has code for the GPU and is built for a CUDA that the driver runs."""
    cuda = machine.torch.cuda_version
    if isinstance(cuda, Absent) or setting.capability is None or setting.driver_cuda is None:
        return False
    return driver_runs_cuda(setting.driver_cuda, cuda) and fit(setting.capability, archs_of(cuda)) == "runs"


def pip(*arguments: str) -> int:
    """The exit status of an installation by pip."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def install(choice: Choice) -> int:
    """The chosen wheel: the release of constraints.txt where its index has that, else the newest there."""
    newest = [word.partition("==")[0] for word in choice.arguments]
    return pip("--force-reinstall", *choice.arguments) and pip("--force-reinstall", *newest)


def main() -> None:
    machine = facts.collect(quick=True, python=Path(sys.executable))
    setting = describe(Evidence(source="machine", machine=machine))
    choice = choose(setting)
    print(choice.reason)
    if not choice.arguments:
        sys.exit(1)
    if "--show" in sys.argv:
        print(" ".join(choice.arguments))
        return
    status = 0 if fits(machine, setting) else install(choice)
    # the pins of constraints.txt, but for torch: that is this card's by now
    pins = CONSTRAINTS.read_text().splitlines(keepends=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(line for line in pins if not line.startswith("torch=="))
        file.flush()
        sys.exit(status or pip("-c", file.name, "-e", ".[train,test]"))


if __name__ == "__main__":
    main()
