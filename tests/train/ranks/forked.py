"""Ranks as forks of one process that has torch: what they do together, without a second of imports for each of them.

How torchrun starts, ends and restarts ranks is proved in test_distributed.py and in train/start/test_launch.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from tests.train.ranks.test_distributed import HEAD, ROOT, TAIL

SERVER = """
import json, os, signal, sys, traceback
from gpudoc.process.lifetime import die_with_parent
die_with_parent(int(sys.argv[1]))
# an optimizer imports torch's compiler when it is made
import torch._dynamo, torch.distributed.checkpoint, torch.distributed.fsdp
from torch.distributed import TCPStore
import gpudoc.train.ranks.fsdp, gpudoc.train.state.shards
from gpudoc.train.start.launch import exit_rank

def be_rank(order, rank, port, parent):
    die_with_parent(parent)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {name: str(order["ranks"]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    # the store is kept by this rank's parent, as torchrun's agent keeps it
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    said = os.open(order["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(said, 1), os.dup2(said, 2)
    sys.argv = [order["script"], os.path.dirname(order["script"]), *order["arguments"]]
    with open(order["script"]) as script:
        exec(compile(script.read(), order["script"], "exec"), {"__name__": "__main__"})

for line in sys.stdin:
    order, ranks, codes = json.loads(line), set(), []
    # any free port, which nobody else can have meanwhile
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    me = os.getpid()
    for rank in range(order["ranks"]):
        if (pid := os.fork()) == 0:
            try:
                be_rank(order, rank, store.port, me)
            except SystemExit as end:
                exit_rank(int(end.code or 0))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        ranks.add(pid)
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1]:
            for other in ranks:
                os.kill(other, signal.SIGKILL)
    print(json.dumps(codes), flush=True)
"""


class Done(NamedTuple):
    """0 where every rank ended well, else the code of the first that did not; and what all of them said."""

    returncode: int
    stderr: str


class Forked:
    """The process that forks; it starts with the first order and ends with `close`."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(self, folder: Path, body: str, *, ranks: int = 2, arguments: tuple[str, ...] = ()) -> Done:
        """Run a script in each rank, as `torchrun` of test_distributed.py does."""
        script, said = folder / "script.py", folder / "said.txt"
        script.write_text(HEAD + textwrap.dedent(body) + TAIL)
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(os.getpid())],
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        order = {"ranks": ranks, "script": str(script), "said": str(said), "arguments": arguments}
        try:
            print(json.dumps(order), file=self._server.stdin, flush=True)
            codes = json.loads(self._server.stdout.readline())
        except BaseException:
            # ranks that hang are not left to the next test
            self.close()
            raise
        return Done(next((code for code in codes if code), 0), said.read_text() if said.exists() else "")

    def close(self) -> None:
        """Kill it, and with it what it forked."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None
