"""How long gpudoc takes to start, compared with the bare imports that it cannot do without, in turns in one run.

python benchmarks/startup.py [--rounds 15] [--log train.log]

`--help` against `import typer, rich.console`, and `doctor FILE` of an ordinary log against the same with yaml: wall and
CPU seconds, the median of the rounds' ratios. Both have their byte code: the first round is not counted.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
HELP = [sys.executable, "-m", "gpudoc", "--help"]
BARE = [sys.executable, "-c", "import typer, rich.console"]
WITH_YAML = [sys.executable, "-c", "import typer, rich.console, yaml"]
# a shell's setting for tests would remove our own byte code but not that of installed packages
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cost(command):
    """Wall and CPU seconds of one run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    # doctor's exit code is 1 if something is wrong
    assert done.returncode in {0, 1}, command
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(name, command, bare, rounds):
    """Print a command's seconds next to those of the bare imports."""
    pairs = [(cost(command), cost(bare)) for _ in range(rounds + 1)][1:]
    for kind, place in (("wall", 0), ("CPU", 1)):
        ours, theirs = ([pair[side][place] for pair in pairs] for side in (0, 1))
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        median = f"{statistics.median(ours) * 1e3:.0f} ms, bare {statistics.median(theirs) * 1e3:.0f} ms"
        print(f"{name:14} {kind:5} {median:28} ratio {ratio:.2f} (median of {rounds})")


def heavy_imports():
    done = subprocess.run([sys.executable, "-X", "importtime", *HELP[1:]], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:") and "|" in line]
    names = {row[2].strip() for row in rows if len(row) == 3}
    return len(names), sorted(names & {"torch", "rich.live", "numpy", "pydantic", "pynvml", "psutil"})


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--log", type=Path, help="the log that doctor reads (default: one of seven lines)")
    chosen = options.parse_args()
    compare("gpudoc --help", HELP, BARE, chosen.rounds)
    with tempfile.TemporaryDirectory() as folder:
        log = chosen.log or Path(folder) / "train.log"
        if chosen.log is None:
            log.write_text(LOG, "utf-8")
        compare("doctor FILE", [sys.executable, "-m", "gpudoc", "doctor", str(log)], WITH_YAML, chosen.rounds)
    count, heavy = heavy_imports()
    print(f"modules imported by --help {count}; heavy ones: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
