"""A workload in which one rank does something else from some step on, and the command that is watched more closely."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from tests.train.support import environment, write_workload

MODULE = '''
import os
import pathlib
import signal
import time

from torch import nn

from tiny_workload import Points

RANK = os.environ.get("RANK", "0")
SINCE = 30


def strikes(fault, kind):
    """Whether this is the rank for the fault "kind:rank", or "kind,other:rank", and no file is there that ends it."""
    kinds, _, rank = fault.partition(":")
    return kind in kinds.split(",") and RANK == rank and not pathlib.Path("go").exists()


class Data(Points):
    def __init__(self, fault="", **more):
        super().__init__(**more)
        self.fault, self.reads = fault, 0

    def __getitem__(self, index):
        self.reads += 1
        held = self.reads > SINCE and strikes(self.fault, "data")
        while held and not os.path.exists("go"): time.sleep(0.05)  # on one line, so that each look finds this one
        if self.reads == SINCE and strikes(self.fault, "stopped"):
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().__getitem__(index)


class Net(nn.Module):
    def __init__(self, fault="", sleep=0.1, slower=1.0):
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.fault, self.calls = fault, 0
        self.sleep = sleep * (slower if strikes(fault, "slow") else 1.0)

    def forward(self, x):
        self.calls += 1
        if self.calls == 1 and strikes(self.fault, "first"):
            time.sleep(20)
        while self.calls > SINCE and strikes(self.fault, "busy"):
            pass
        if not self.training and strikes(self.fault, "evaluation"):
            time.sleep(1.5)
        time.sleep(self.sleep)
        return self.layer(x)
'''
# looks ten times a second and reports after that many seconds as its last argument says, so that a test need not wait
WATCHED = """
import sys
from gpudoc.train.start import launch
from gpudoc.train.watch import watch
launch._LOOK_SECONDS = watch.LOOK_S = 0.1
watch.FIRST_S = 60.0
watch.FLOOR_S, watch.END_TIMES = float(sys.argv.pop()), 2.0
from gpudoc.cli.app import main
main()
"""


def write_faulty(folder: pathlib.Path, fault: str = "", *, net: dict | None = None, evaluated: bool = False, **train):
    """A cfg.yaml whose rank in "kind:rank" goes wrong."""
    config = write_workload(folder, evaluated=evaluated, **{"global_batch": 4, "log_every": 5, **train})
    (folder / "faulty.py").write_text(MODULE)
    content = json.loads(config.read_text())
    content["model"] = {"target": "faulty:Net", "args": {"fault": fault, **(net or {})}}
    content["data"] = {**content["data"], "target": "faulty:Data", "args": {"fault": fault, "count": 96}}
    config.write_text(json.dumps(content))
    return config


def watched(folder: pathlib.Path, *arguments: object, floor_s: float) -> subprocess.Popen[str]:
    """`gpudoc train` there, watched more closely than it is in earnest; what it says on stderr goes to a file."""
    line = [
        "train",
        "--device",
        "cpu",
        "--profile",
        "off",
        "--no-preflight",
        "--model",
        "cfg.yaml",
        *map(str, arguments),
    ]
    script = folder / "watched.py"
    script.write_text(WATCHED)
    # ranks are started as `-m gpudoc`, so only the process above them is changed
    command = [sys.executable, str(script), *line, str(floor_s)]
    with (folder / "said").open("w") as said:
        return subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=said, text=True)
