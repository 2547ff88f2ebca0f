"""The training scripts with a planted bottleneck and the healthy ones, watched by `gpudoc doctor --pid`.

    python campaigns/watch_scripts.py [--seconds 20] [--only NAME,...] [--gains] [--record FILE]
                                       [--results FILE [--resume] [--budget SECONDS]]

For each script: what was planted, the first verdict, the share of time, the estimated gain. With --gains the scripts
whose mend is a loader setting are run again mended, and the real gain stands beside the estimate. With --results every
row is kept as it ends, --resume goes on after the last one, and --budget makes slices of a long run. Needs Linux, and
for one script the right to make a CPU cgroup (v1 or v2); scripts that need more GPUs than there are here are left out.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "tests" / "scripts"
sys.path[:0] = [str(SCRIPTS), str(ROOT), str(ROOT / "benchmarks")]
from catalogue import SCRIPTS as CATALOGUE  # noqa: E402
from in_parts import add_options, open_parts  # noqa: E402

from gpudoc.facts.live.tree import descendants  # noqa: E402

WARM_S = 3.0


class Job:
    """One script as a process group, with its speed file."""

    def __init__(self, script, mended=False, workers=1):
        self.speed = pathlib.Path(tempfile.mkdtemp(), "speed")
        command = [sys.executable, str(SCRIPTS / f"{script.name}.py")]
        if script.ranks > 1:
            run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={script.ranks}"]
            command = [sys.executable, *run, command[1]]
        if script.quota:
            command = ["sh", "-c", f'echo $$ > {_cgroup(script.quota)}/cgroup.procs; exec "$@"', "sh", *command]
        environment = {
            **os.environ,
            "SPEED_FILE": str(self.speed),
            "SCRIPT_SECONDS": "600",
            "FIXED": "1" if mended else "0",
            "ADVISED_WORKERS": str(workers),
        }
        environment.pop("OMP_NUM_THREADS", None)
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def rows(self):
        if not self.speed.exists():
            return []
        rows = []
        for line in self.speed.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows

    def wait_until_it_trains(self, hangs):
        began = time.monotonic()
        while time.monotonic() - began < 120 and self.process.poll() is None:
            if len(self.rows()) > 6 or (hangs and time.monotonic() - began > 25):
                break
            time.sleep(0.25)
        time.sleep(WARM_S)
        return self.process.poll() is None

    def steps_per_s(self, seconds):
        before = time.monotonic()
        time.sleep(seconds)
        rows = [r for r in self.rows() if r[0] >= before]
        return (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0]) if len(rows) > 1 else 0.0

    def end(self):
        # torchrun gives every rank a session of its own, which outlives the group
        for pid in reversed(descendants(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _cgroup(quota):
    for base, name, text in (
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", str(int(quota * 100_000))),
        ("/sys/fs/cgroup", "cpu.max", f"{int(quota * 100_000)} 100000"),
    ):
        folder = pathlib.Path(base, "gpudoc-planted")
        try:
            folder.mkdir(exist_ok=True)
            if (folder / name).exists():
                (folder / name).write_text(text)
                return folder
        except OSError:
            continue
    raise SystemExit("no right to make a CPU cgroup; leave that script out with --only")


def watch(job, seconds):
    command = [
        sys.executable,
        "-m",
        "gpudoc",
        "doctor",
        "--pid",
        str(job.process.pid),
        "--seconds",
        str(seconds),
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"findings": [], "verdict": f"no document: {done.stderr[-200:]}"}


def first_of(document):
    return document["findings"][0]["id"] if document["findings"] else document["verdict"]


def evidence(document, fact):
    seen = [e["value"] for f in document["findings"][:1] for e in f["evidence"] if e["fact"] == fact]
    return seen[0] if seen else ""


def is_right(script, document):
    if script.expected == "healthy":
        return document["verdict"] == "healthy" and first_of(document) == "compute_bound"
    return first_of(document) == script.expected


def try_one(script, seconds):
    job = Job(script)
    try:
        if not job.wait_until_it_trains(script.expected == "job_hung"):
            return None
        return watch(job, seconds)
    finally:
        job.end()


def one_pair(script, seconds, workers):
    """Steps per second as planted and mended with the advised number of workers; None when either did not train."""
    speeds = []
    for mended in (False, True):
        job = Job(script, mended, workers)
        try:
            if not job.wait_until_it_trains(False):
                return None
            speeds.append(job.steps_per_s(seconds))
        finally:
            job.end()
    return speeds


def phases(document):
    ranks = document.get("watch", {}).get("ranks", [])
    shares = list(ranks[0]["phases"].items())[:2] if ranks else []
    return ", ".join(f"{name} {share:.0%}" for name, share in shares)


def gpus():
    if shutil.which("nvidia-smi") is None:
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def typed():
    """The options of this call, without where its results go."""
    words, kept = sys.argv[1:], []
    while words:
        word = words.pop(0)
        if word in ("--record", "--results", "--budget"):
            words.pop(0)
        elif word != "--resume":
            kept.append(word)
    return " ".join(kept)


def choose(options):
    """The scripts that were asked for and can run here."""
    wanted = [w for w in options.only.split(",") if w]
    scripts = [s for s in CATALOGUE if not wanted or any(w in (s.name, s.expected) for w in wanted)]
    if options.gains:
        scripts = [s for s in scripts if s.mended]
    left = [s.name for s in scripts if s.gpus > gpus() or importlib.util.find_spec(s.framework) is None]
    if left:
        print(f"left out, not enough GPUs here or a library that is not installed: {', '.join(left)}", flush=True)
    return [s for s in scripts if s.name not in left]


def verdict_row(script, document):
    advised = evidence(document, "estimated_gain")
    fixes = " ".join(remedy["say"] for f in document["findings"][:1] for remedy in f["fix"])
    workers = re.findall(r"num_workers=(\d+)", fixes.partition("Until then")[0])
    return {
        "kind": "verdict", "script": script.name, "planted": script.expected, "framework": script.framework,
        "verdict": first_of(document), "document_verdict": document["verdict"], "right": is_right(script, document),
        "main_thread": phases(document), "estimate": float(advised.rstrip("x")) if advised else None,
        "with_workers": evidence(document, "with_workers").partition("x")[0] or None,
        "workers": int(workers[-1]) if workers else None,
    }  # fmt: skip


def look_at(script, options, parts):
    """The rows that this script still lacks."""
    mine = [r for r in parts.rows if key(r) == (script.name, script.expected)]
    mine.sort(key=lambda row: row["kind"] != "verdict")
    if not any(r["kind"] == "verdict" for r in mine):
        document = try_one(script, options.seconds) or {"findings": [], "verdict": "the script did not start"}
        parts.add(**verdict_row(script, document))
        mine = [parts.rows[-1]]
    for number in range(sum(r["kind"] == "pair" for r in mine), options.rounds if options.gains else 0):
        if parts.time_is_up():
            return
        pair = one_pair(script, options.gain_seconds, mine[0].get("workers") or 1)
        if pair is not None:
            parts.add(
                kind="pair", script=script.name, planted=script.expected, round=number, before=pair[0], after=pair[1]
            )


def key(row):
    """One script may stand in the catalogue twice, with and without a quota."""
    return row["script"], row["planted"]


def real_gain(row, rows):
    """The median speed mended over the median speed as planted; None without a pair."""
    pairs = [r for r in rows if r["kind"] == "pair" and key(r) == key(row)]
    if not pairs:
        return None
    return statistics.median(p["after"] for p in pairs) / max(1e-9, statistics.median(p["before"] for p in pairs))


def is_close(row, real):
    """Whether the estimate was within a factor of 1.5; a mend that was advised against must indeed not help."""
    if row["estimate"] is None:
        return real < 1.1
    return 1 / 1.5 <= real / row["estimate"] <= 1.5


def cells(row, rows):
    guess = f"{row['estimate']:.2f}x" if row["estimate"] is not None else ""
    if row["with_workers"]:
        guess = f"not advised ({row['with_workers']}x)"
    real = real_gain(row, rows)
    right = "yes" if row["right"] else "NO"
    measured = "" if real is None else f"{real:.2f}x"
    names = (row["script"], row["framework"], row["planted"], row["verdict"])
    return (*names, right, row["main_thread"], guess, measured)


def summary(rows):
    verdicts = [r for r in rows if r["kind"] == "verdict"]
    planted = sum(r["planted"] != "healthy" for r in verdicts)
    broken = sum(r["planted"] == "healthy" and r["document_verdict"] == "broken" for r in verdicts)
    right = sum(r["right"] for r in verdicts)
    total = f"{right} of {len(verdicts)} right ({planted} planted, {len(verdicts) - planted} healthy)"
    total += f"; healthy called broken: {broken}"
    compared = [(r, real) for r in verdicts if (real := real_gain(r, rows)) is not None]
    if compared:
        close = sum(is_close(r, real) for r, real in compared)
        total += f"; gain within a factor of 1.5: {close} of {len(compared)}"
    return total


HEADING = (
    "| script | framework | planted | first verdict | right | main thread | estimated gain | real gain |",
    "|" + "---|" * 8,
)


def write_record(place, parts, options):
    title = "# gpudoc doctor on running jobs: planted bottlenecks and healthy scripts"
    command = f"Command: `python campaigns/watch_scripts.py {typed()}`; {options.seconds:g} s watched each"
    if options.gains:
        command += f", pairs of {options.gain_seconds:g} s"
    lines = ["| " + " | ".join(cells(r, parts.rows)) + " |" for r in parts.rows if r["kind"] == "verdict"]
    text = [title, "", f"{parts.about()}.", f"{command}.", "", summary(parts.rows), "", *HEADING, *lines]
    place.write_text("\n".join(text) + "\n")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--only", default="")
    options.add_argument("--gains", action="store_true")
    options.add_argument("--gain-seconds", type=float, default=15.0)
    options.add_argument("--rounds", type=int, default=3)
    add_options(options)
    options = options.parse_args()
    parts = open_parts(options)
    print("\n".join(HEADING), flush=True)
    scripts = choose(options)
    for place, script in enumerate(scripts):
        if parts.time_is_up():
            print(f"time is up; {len(scripts) - place} scripts are left for --resume", flush=True)
            break
        before = len(parts.rows)
        look_at(script, options, parts)
        for row in parts.rows if len(parts.rows) > before else ():
            if row["kind"] == "verdict" and key(row) == (script.name, script.expected):
                print("| " + " | ".join(cells(row, parts.rows)) + " |", flush=True)
        if options.record:
            write_record(options.record, parts, options)
    print(summary(parts.rows))


if __name__ == "__main__":
    main()
