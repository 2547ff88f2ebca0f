"""Whether real scripts run unchanged with the inside in them, and whether their loaders and steps are seen.

    python campaigns/script_real.py LIST [--python PYTHON] [--only NAME ...] [--seconds 180] [--record]

LIST is a YAML file beside the scripts, which are kept nowhere in this project:

    - {name: mnist, from: pytorch/examples, folder: examples/mnist, command: python main.py --epochs 1, feeds: main.py}
    - {name: nanoGPT, from: karpathy/nanoGPT, folder: nanoGPT, command: python train.py ..., feeds: null}

`feeds` is the file in which the loader that trains is built, null where the script has none; `through` the framework,
torch where it is not named. Each script runs twice, alone and with the inside: it is unchanged when the exit code is
the same and the lines that it prints are, apart from the numbers in them (times, and losses where it sets no seed).
Files that it writes stay where it writes them: give it a folder of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import difflib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoc.script.hook import environment, read  # noqa: E402
from gpudoc.script.messages import HookOrder  # noqa: E402

# progress bars overwrite their line, and how often depends on the clock
NOISE = re.compile(r"^.*\r|\x1b\[[0-9;?]*[A-Za-z]", re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d[\d.,:e+-]*|\bnan\b|/tmp/\S+")
BAR = re.compile(r"\d+%\||it/s|s/it|█")


def run(script, folder, python, seconds, told=None):
    """One launch: exit code, the lines that it printed, seconds."""
    variables = {**os.environ, **script.get("variables", {}), "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
    variables["PATH"] = os.pathsep.join([str(pathlib.Path(python).parent), variables["PATH"]])
    if told is not None:
        variables = environment(told, HookOrder(purpose="look"), variables)
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        started = subprocess.Popen(
            shlex.split(script["command"]), cwd=folder, env=variables, stdout=out, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = started.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # what it started would slow the next one down
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        out.seek(0)
        text = out.read()
    lines = [line.strip() for line in NOISE.sub("", text).splitlines() if line.strip() and not BAR.search(line)]
    return code, lines, time.perf_counter() - began


def difference(alone, watched):
    """How the printed lines differ: not, in their numbers, or by so many lines; ranks may print in any order."""
    if alone == watched:
        return "same"
    # a table is as wide as its numbers
    masked = [
        [re.sub(r"\s+", " ", NUMBER.sub("#", line)).replace("( #", "(#") for line in lines]
        for lines in (alone, watched)
    ]
    if sorted(masked[0]) == sorted(masked[1]):
        return "same but for numbers"
    lines = [
        line
        for line in difflib.unified_diff(*masked, lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    return f"{len(lines)} lines differ: {lines[0][:60]}"


def judge(script, seen):
    """What was seen of a script, and whether it is what its row of the list expects."""
    training = [process for process in seen if process.trains]
    if not training:
        return "no step", "", 0, 0, False
    first = training[0]
    loader = first.feeding()
    origin = first.origin(loader.number) if loader else None
    found = "none" if origin is None else f"{origin.place} ({loader.through})"
    expected = script.get("feeds")
    right = (origin is None and expected is None) or (
        origin is not None and expected is not None and origin.place.startswith(expected + ":")
        and loader.through == script.get("through", "torch")
    )  # fmt: skip
    asides = [why for process in seen for why in process.asides]
    share = first.total.wait_s / first.total.seconds if first.total.seconds else 0.0
    return "; ".join(asides) or found, len(first.loaders), first.total.steps, share, right and not asides


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="the Python that has what the scripts import")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=180.0, help="of one launch")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    scripts = yaml.safe_load(options.list.read_text())
    names = ("script", "from", "exit code", "output", "ranks", "loaders", "the loader that trains", "steps", "waiting")
    rows = ["| " + " | ".join([*names, "as expected"]) + " |", "|" + "---|" * 10]
    print(*rows, sep="\n", flush=True)
    good = 0
    chosen = [script for script in scripts if not options.only or script["name"] in options.only]
    for script in chosen:
        folder = options.list.resolve().parent / script.get("folder", ".")
        alone = run(script, folder, options.python, options.seconds)
        with tempfile.TemporaryDirectory() as told:
            watched = run(script, folder, options.python, options.seconds, pathlib.Path(told))
            seen = read(pathlib.Path(told))
        found, loaders, steps, share, right = judge(script, seen)
        output = difference(alone[1], watched[1])
        unchanged = alone[0] == watched[0] and output.startswith("same")
        good += unchanged and right
        ranks = sum(process.trains for process in seen)
        codes = str(alone[0]) if alone[0] == watched[0] else f"{alone[0]}, watched {watched[0]}"
        rows.append(
            f"| {script['name']} | {script['from']} | {codes} | {output} | {ranks} | {loaders} | {found} | {steps} "
            f"| {share:.0%} | {'yes' if unchanged and right else 'no'} |"
        )
        print(rows[-1], flush=True)
        if alone[0] != 0 or watched[0] != 0:
            print("   ", *(alone if alone[0] else watched)[1][-6:], sep="\n    ", file=sys.stderr)
    print(f"\n{good} of {len(chosen)} as expected")
    if options.record:
        path = ROOT / "records" / f"{datetime.date.today()}-script-real.md"
        head = f"python campaigns/script_real.py; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
        path.write_text("\n".join([head, "", *rows, "", f"{good} of {len(chosen)} as expected", ""]))


if __name__ == "__main__":
    main()
