"""The stand-in GPUs of one test: how many, how large, and who holds what on them."""

from __future__ import annotations

import atexit
import importlib.util
import os
import secrets
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.fleet.allocation import free_port
from tests.standin import forked

ROOT = Path(__file__).parents[2]
# no test takes so long; on a machine that does much else a command takes minutes
PATIENCE_S = 1200.0


def _table(state: str) -> Path:
    return Path(f"/dev/shm/standin-{os.getuid()}-{state}")


def _is_living(pid: int) -> bool:
    """A process that was killed, or waits to be collected, holds nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# a test that runs CUDA in its own process shares its GPU with no other test process
os.environ["STANDIN_STATE"] = secrets.token_hex(8)
atexit.register(_table(os.environ["STANDIN_STATE"]).unlink, missing_ok=True)

# `holder` in libraries/standin.h: pid, gpu, bytes, busy_until
_HOLDER = struct.Struct("iiqq")
_HOLDERS = 512


IS_STANDIN = importlib.util.find_spec("standin_hook") is not None


def real_gpu(reason: str) -> pytest.MarkDecorator:
    """Marks what only a real card can show; `reason` says why the stand-in cannot."""
    return pytest.mark.skipif(IS_STANDIN, reason=f"needs a real GPU: {reason}")


class StandIn:
    """The environment of stand-in GPUs that no other test shares; commands run in it see only these."""

    def __init__(self, home: Path, *, gpus: int = 1, memory: str = "16G", **settings: object) -> None:
        self.home = home
        self.state = secrets.token_hex(8)
        self.written = home / f"contexts-{self.state}"
        settings = {"contexts": self.written, **settings}
        named = {f"STANDIN_{name.upper()}": str(value) for name, value in settings.items()}
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STANDIN_STATE": self.state,
            "STANDIN_GPUS": str(gpus),
            "STANDIN_GPU_BYTES": memory,
            **named,
        }

    @property
    def table(self) -> Path:
        """The shared table of who holds how much of which GPU."""
        return _table(self.state)

    def run(self, *command: str, timeout_s: float = PATIENCE_S, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command beside these GPUs, with its output."""
        return subprocess.run(
            command,
            cwd=self.home,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def python(self, code: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Python code in a separate process, in which PyTorch and training are imported already."""
        return self._forked([more], code=code)

    def gpudoc(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """gpudoc in a separate process, as it is typed."""
        return self.run(sys.executable, "-m", "gpudoc", *arguments, **more)

    def forked(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """gpudoc in a separate process, in which PyTorch and training are imported already."""
        return self._forked([more], *arguments)

    def ranks(self, number: int, code: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`python` as so many processes, with the variables that torchrun gives."""
        common = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(number),
            "LOCAL_WORLD_SIZE": str(number),
            "OMP_NUM_THREADS": "1",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            **more,
        }
        own = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(number)]
        return self._forked(own, code=code)

    def _forked(
        self, own: Sequence[Mapping[str, str]], *arguments: str, code: str = ""
    ) -> subprocess.CompletedProcess[str]:
        environments = [{**self.environment, **more} for more in own]
        return forked.run(arguments, environments, code=code, folder=self.home, timeout_s=PATIENCE_S)

    def holders(self) -> Sequence[tuple[int, int, int]]:
        """(pid, GPU, bytes) of every living process that has a context."""
        if not self.table.exists():
            return ()
        rows = _HOLDER.iter_unpack(self.table.read_bytes()[: _HOLDERS * _HOLDER.size])
        return [(pid, gpu, held) for pid, gpu, held, _ in rows if pid and _is_living(pid)]

    def contexts(self) -> Sequence[tuple[int, int, str]]:
        """(pid, GPU, command line) of every context that was ever made beside these GPUs, in order."""
        if not self.written.exists():
            return ()
        rows = [line.split(" ", 2) for line in self.written.read_text().splitlines()]
        return [(int(pid), int(gpu), command) for pid, gpu, command in rows]


@pytest.fixture
def standin(tmp_path):
    """Makes stand-in GPUs: `standin(gpus=2, memory="4G", cc="8.0")`; what they kept is removed after the test."""
    made: list[StandIn] = []

    def make(**settings: object) -> StandIn:
        made.append(StandIn(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.table.unlink(missing_ok=True)
