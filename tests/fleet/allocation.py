"""An allocation of several nodes on this machine: processes with the variables that srun gives, under other names."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

from gpudoc.process.seal import KEY

ROOT = Path(__file__).resolve().parents[2]
# read by every process as it starts: times for a test, of which none is a figure
SHORT = """
from gpudoc.fleet import stages
short = stages.Times(alone=0.2, together=0.2, steps=0.1, digests=0.1, sweep=0.4, pair=0.1, host=0.2)
stages.QUICK = stages.FULL = short
"""


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel may give to anybody until it is used."""
    above = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, above)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


class Allocation:
    """`nodes` x `tasks` processes of one gpudoc command; a context manager that leaves none of them."""

    def __init__(self, folder: Path, *, nodes: int, tasks: int = 1, patch: str = "", prefix: str = "n") -> None:
        self.folder, self.nodes, self.tasks = folder, nodes, tasks
        (folder / "sitecustomize.py").write_text(SHORT + patch)
        self.processes: list[subprocess.Popen] = []
        self.common = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            KEY: secrets.token_hex(16),
            "MASTER_PORT": str(free_port()),
            "SLURM_STEP_NUM_TASKS": str(nodes * tasks),
            "SLURM_STEP_NODELIST": f"{prefix}[0-{nodes - 1}]",
        }
        self.prefix = prefix

    def start(self, *arguments: str, leave_out: tuple[int, ...] = ()) -> Allocation:
        """Start `gpudoc ARGUMENTS` in every task but those left out."""
        for rank in range(self.nodes * self.tasks):
            if rank in leave_out:
                continue
            own = {
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(rank % self.tasks),
                "SLURMD_NODENAME": f"{self.prefix}{rank // self.tasks}",
            }
            with self.said(rank, "out").open("w") as out, self.said(rank, "err").open("w") as err:
                command = [sys.executable, "-m", "gpudoc", *arguments]
                process = subprocess.Popen(
                    command, cwd=self.folder, env={**self.common, **own}, stdout=out, stderr=err, start_new_session=True
                )
            self.processes.append(process)
        return self

    def said(self, rank: int, stream: str = "out") -> Path:
        return self.folder / f"{rank}.{stream}"

    def wait(self, seconds: float = 240.0) -> list[int]:
        return [process.wait(seconds) for process in self.processes]

    def __enter__(self) -> Allocation:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
