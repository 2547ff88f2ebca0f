"""The training scripts with a planted bottleneck and the healthy ones, watched by `gpudoc doctor --pid`.

    python benchmarks/watch_scripts.py [--seconds 20] [--only NAME,...] [--gains] [--record FILE]

For each script: what was planted, the first verdict, the share of time, the estimated gain. With --gains the scripts
whose mend is a loader setting are run again mended, and the real gain stands beside the estimate. Needs Linux, and for
one script the right to make a CPU cgroup (v1 or v2); without it that script is left out and said so.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "tests" / "scripts"
sys.path[:0] = [str(SCRIPTS), str(ROOT)]
from catalogue import SCRIPTS as CATALOGUE  # noqa: E402

from gpudoc.facts.live.tree import descendants  # noqa: E402

WARM_S = 3.0


class Job:
    """One script as a process group, with its speed file."""

    def __init__(self, script, mended=False):
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


def real_gain(script, seconds, rounds):
    """The speed mended over the speed as planted: medians of runs that take turns."""
    speeds = {False: [], True: []}
    for _ in range(rounds):
        for mended in (False, True):
            job = Job(script, mended)
            try:
                if job.wait_until_it_trains(False):
                    speeds[mended].append(job.steps_per_s(seconds))
            finally:
                job.end()
    if not speeds[False] or not speeds[True]:
        return None
    return statistics.median(speeds[True]) / max(1e-9, statistics.median(speeds[False]))


def phases(document):
    ranks = document.get("watch", {}).get("ranks", [])
    shares = list(ranks[0]["phases"].items())[:2] if ranks else []
    return ", ".join(f"{name} {share:.0%}" for name, share in shares)


def machine():
    model = next(
        (r.split(":")[1].strip() for r in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in r),
        "?",
    )
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return (
        f"{model}, {os.cpu_count()} cores; Linux {platform.release().partition('-')[0]}, Python "
        f"{platform.python_version()}, torch {torch.__version__}; commit {commit.stdout.strip()}; load at the begin "
        f"{os.getloadavg()[0]:.1f}"
    )


def typed():
    """The options of this call, without where the record goes."""
    words = list(sys.argv[1:])
    if "--record" in words:
        place = words.index("--record")
        del words[place : place + 2]
    return " ".join(words)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--only", default="")
    options.add_argument("--gains", action="store_true")
    options.add_argument("--gain-seconds", type=float, default=15.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--record", type=pathlib.Path)
    options = options.parse_args()
    wanted = [w for w in options.only.split(",") if w]
    scripts = [s for s in CATALOGUE if not wanted or any(w == s.name or w == s.expected for w in wanted)]
    if options.gains:
        scripts = [s for s in scripts if s.mended]
    about = machine()
    lines = [
        "| script | framework | planted | first verdict | right | main thread | estimated gain | real gain |",
        "|" + "---|" * 8,
    ]
    print("\n".join(lines), flush=True)
    right, broken, close, compared = 0, 0, 0, 0
    for script in scripts:
        document = try_one(script, options.seconds)
        if document is None:
            document = {"findings": [], "verdict": "the script did not start"}
        good = is_right(script, document)
        right += good
        broken += script.expected == "healthy" and document["verdict"] == "broken"
        estimate, real = evidence(document, "estimated_gain"), ""
        if options.gains:
            measured = real_gain(script, options.gain_seconds, options.rounds)
            if measured is not None:
                real = f"{measured:.2f}x"
                compared += 1
                guess = float(estimate.rstrip("x")) if estimate else 1.0
                close += 1 / 1.5 <= measured / guess <= 1.5
        row = (script.name, script.framework, script.expected, first_of(document), "yes" if good else "NO",
               phases(document), estimate, real)  # fmt: skip
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    planted = sum(s.expected != "healthy" for s in scripts)
    total = f"{right} of {len(scripts)} right ({planted} planted, {len(scripts) - planted} healthy)"
    total += f"; healthy called broken: {broken}"
    if options.gains:
        total += f"; gain within a factor of 1.5: {close} of {compared}"
    print(total)
    if options.record:
        title = "# gpudoc doctor on running jobs: planted bottlenecks and healthy scripts"
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        command = "python benchmarks/watch_scripts.py " + typed()
        text = [
            title,
            "",
            f"{date}; {about}.",
            f"Command: `{command}`; {options.seconds:g} s watched each.",
            "",
            total,
            "",
        ]
        options.record.write_text("\n".join([*text, *lines]) + "\n")


if __name__ == "__main__":
    main()
