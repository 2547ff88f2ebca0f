"""Count the files that data passes through: how many of the package's files are entered on each way.

    python tools/hops.py               # all ways, a table
    python tools/hops.py doctor --list # one way, and its files in the order of first entry

A file counts if one of its functions is called; importing it does not count. `doctor` judges a log of seven lines in a
process that has done so once before. `step` is one optimizer step of `gpudoc train` on the CPU, neither logged nor
saved. `script` is everything inside the process of a user's script under `gpudoc tune -- COMMAND`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOG = """\
Traceback (most recent call last):
  File "train.py", line 31, in <module>
    loss.backward()
  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 626, in backward
    torch.autograd.backward(self, gradient)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of \
which 1.10 GiB is free. Process 4711 has 9.50 GiB memory in use. Of the allocated memory 12.10 GiB is allocated by \
PyTorch, and 310.00 MiB is reserved by PyTorch but unallocated.
"""

DOCTOR = """
import contextlib, io, sys
from gpudoc.cli.app import run
def judge():
    with contextlib.redirect_stdout(io.StringIO()):
        run(["doctor", sys.argv[1]])
judge()
files = {}
sys.setprofile(lambda frame, event, _: event == "call" and files.setdefault(frame.f_code.co_filename))
judge()
sys.setprofile(None)
print(*files, sep="\\n")
"""

# from one backward to the next: a step, and the batch of the next step
STEP = """
import sys
from gpudoc.train.step.step import Stepper
from gpudoc.cli.app import run
steps = [dict() for _ in range(12)]
at, backward = [0], Stepper.backward.__code__
def enter(frame, event, _):
    if event == "call":
        if frame.f_code is backward:
            at[0] += 1
        if at[0] < len(steps):
            steps[at[0]].setdefault(frame.f_code.co_filename)
sys.setprofile(enter)
run(["train", "--steps", "20", "--batch-size", "32", "--device", "cpu", "--run-dir", sys.argv[1], "--profile", "off",
     "--no-preflight", "--shared", "--set", "log_every=1000", "--plain"])
sys.setprofile(None)
print("FILES")
print(*steps[8], sep="\\n")
"""

SCRIPT = """
import atexit, sys, torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(TensorDataset(torch.randn(4096, 8), torch.randn(4096, 1)), batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
open(sys.argv[1], "w").write("\\n".join(sorted(files)))
"""


def judge_a_log(folder: Path) -> list[str]:
    """Files entered from the command line of `gpudoc doctor LOG` to its screen."""
    (folder / "train.log").write_text(LOG, "utf-8")
    return _run([sys.executable, "-c", DOCTOR, str(folder / "train.log")]).splitlines()


def train_a_step(folder: Path) -> list[str]:
    """Files entered by one step of `gpudoc train`, including the fetch of the next step's batch."""
    printed = _run([sys.executable, "-c", STEP, str(folder / "run")])
    return printed.partition("FILES\n")[2].splitlines()


def look_at_a_script(folder: Path) -> list[str]:
    """Files of the package that are loaded inside a user's script while gpudoc looks at it."""
    (folder / "user.py").write_text(SCRIPT, "utf-8")
    out = folder / "files.txt"
    command = [sys.executable, "user.py", str(out)]
    _run([sys.executable, "-m", "gpudoc", "tune", "--only", "look", "--in-place", "--shared", "--", *command], folder)
    return out.read_text("utf-8").splitlines()


WAYS: dict[str, tuple[Callable[[Path], list[str]], int, str]] = {
    "doctor": (judge_a_log, 45, "from a log of seven lines to the screen"),
    "step": (train_a_step, 12, "one step of train"),
    "script": (look_at_a_script, 6, "inside the process of a user's script"),
}


def files_of(way: str) -> list[str]:
    """The package's files that are entered on `way`, in order, relative to the package."""
    with tempfile.TemporaryDirectory() as name:
        entered = WAYS[way][0](Path(name))
    package = str(ROOT / "gpudoc") + os.sep
    return [file.removeprefix(package) for file in dict.fromkeys(entered) if file.startswith(package)]


def main() -> int:
    """Print the table, and the files if they are asked for."""
    parser = argparse.ArgumentParser(description="Count the files of the package that data passes on each way.")
    parser.add_argument("way", nargs="*", choices=[*WAYS, []], help="which ways (default: all)")
    parser.add_argument("--list", action="store_true", help="print the files too")
    arguments = parser.parse_args()
    for way in arguments.way or WAYS:
        files = files_of(way)
        _, goal, meaning = WAYS[way]
        print(f"{way:<8}{len(files):>4} files (goal {goal})   {meaning}")
        if arguments.list:
            print(*(f"    {file}" for file in files), sep="\n")
    return 0


def _run(command: list[str], folder: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    if done.returncode not in {0, 1} or "Traceback" in done.stderr:
        raise SystemExit(
            f"{' '.join(command[:4])} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
