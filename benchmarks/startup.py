"""How long `gpudoc --help` takes beside `python -c "import typer, rich.console"`, alternating in one run.

python benchmarks/startup.py [--rounds 15]
"""

import argparse
import statistics
import subprocess
import sys
import time

HELP = [sys.executable, "-m", "gpudoc", "--help"]
BARE = [sys.executable, "-c", "import typer, rich.console"]


def seconds(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def heavy_imports():
    done = subprocess.run([sys.executable, "-X", "importtime", *HELP[1:]], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:") and "|" in line]
    names = {row[2].strip() for row in rows if len(row) == 3}
    return len(names), sorted(names & {"torch", "rich.live", "numpy", "pydantic", "pynvml", "psutil"})


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    pairs = [(seconds(HELP), seconds(BARE)) for _ in range(rounds)]
    ratio = statistics.median(ours / bare for ours, bare in pairs)
    count, heavy = heavy_imports()
    print(f"gpudoc --help          {statistics.median(p[0] for p in pairs) * 1e3:.0f} ms (median of {rounds})")
    print(f"import typer, rich     {statistics.median(p[1] for p in pairs) * 1e3:.0f} ms")
    print(f"ratio                  {ratio:.2f} (median of the pairs)")
    print(f"modules imported       {count}; heavy ones: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
