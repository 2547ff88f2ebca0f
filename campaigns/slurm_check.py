"""A real SLURM of one node, its daemons started by hand, runs the sbatch file that `gpudoc train --slurm` writes.

python campaigns/slurm_check.py [--install] [--record FILE] [--fleet]

Two gloo ranks train the quickstart; the batch shell gets the signal that SLURM sends before a time limit; the training
must save, the job must be queued again, go on where it stopped, and finish. Works as root without systemd; `--install`
fetches Debian's slurmctld, slurmd, munge and slurm-wlm-basic-plugins where they are missing, and removes them again.

With `--fleet` it runs the file of `gpudoc bench --across --slurm` instead, on two slurmd under other names, where this
SLURM can have several on a machine, else as two tasks on one node; then again with a job that is cancelled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import gpudoc

PACKAGES = ("slurmctld", "slurmd", "munge", "slurm-wlm-basic-plugins", "slurm-client")
ROOT = Path(__file__).resolve().parents[1]
STEPS = 60
FAILED = []
CONF = """
ClusterName=check
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.sock,cred_expire=10
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=60
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdSpoolDir={place}/spool-%n
StateSaveLocation={place}/state
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
SlurmctldPort={port}
SlurmdPort={port1}
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """munged, slurmctld and slurmd in one folder; a context manager that ends them all."""

    def __init__(self, place, names=()):
        self.place, self.daemons = place, []
        self.names = names or (socket.gethostname().split(".")[0],)

    def __enter__(self):
        place, host = self.place, socket.gethostname().split(".")[0]
        for name in ("munge", "spool", "state"):
            (place / name).mkdir()
        # munged asks that nobody else may write on the way to its socket
        place.chmod(0o711)
        (place / "munge").chmod(0o711)
        (place / "munge.key").write_bytes(os.urandom(1024))
        (place / "munge.key").chmod(0o600)
        port = free_port()
        cpus = max(1, os.cpu_count() // len(self.names))
        several = f"NodeHostname={host} " if len(self.names) > 1 else ""
        nodes = "\n".join(
            f"NodeName={name} {several}NodeAddr=127.0.0.1 Port={free_port()} CPUs={cpus} RealMemory=1000 State=UNKNOWN"
            for name in self.names
        )
        known = {"nodes": nodes, "names": ",".join(self.names)}
        text = CONF.format(host=host, place=place, port=port, port1=free_port(), **known)
        (place / "slurm.conf").write_text(text)
        os.environ["SLURM_CONF"] = str(place / "slurm.conf")
        self.start(
            "munged", "--foreground", "--force", f"--key-file={place}/munge.key", f"--socket={place}/munge.sock",
            f"--pid-file={place}/munge/munged.pid", f"--log-file={place}/munge/munged.log",
            f"--seed-file={place}/munge/munged.seed",
        )  # fmt: skip
        wait_for("munge", lambda: (place / "munge.sock").exists(), 30)
        self.start("slurmctld", "-D", "-f", str(place / "slurm.conf"))
        for name in self.names:
            (place / f"spool-{name}").mkdir()
            self.start("slurmd", "-D", "-f", str(place / "slurm.conf"), "-N", name)
        wait_for("the nodes", lambda: ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * len(self.names), 60)
        return self

    def __exit__(self, *_):
        # a job outlives the daemons that started it
        ask("scancel", "--partition=all")
        with contextlib.suppress(SystemExit):
            wait_for("the end of all jobs", lambda: not ask("squeue", "-h"), 60)
        for process in reversed(self.daemons):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()
                process.wait()

    def start(self, *command):
        log = (self.place / f"{command[0]}.out").open("w")
        program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        self.daemons.append(subprocess.Popen([program, *command[1:]], stdout=log, stderr=log))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def wait_for(what, is_there, seconds):
    until = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > until:
            for tell in FAILED:
                tell()
            raise SystemExit(f"slurm-check: {what} did not come within {seconds} s")
        time.sleep(0.3)


def step_of(run):
    try:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return 0
    return max((row.get("step", 0) for row in rows), default=0)


def tell_on_failure(place, number):
    """Have a wait that fails show the job and its log."""

    def tell():
        print(ask("scontrol", "show", "job", number), file=sys.stderr)
        for log in place.glob("*.log"):
            print(f"{log.name}:\n{log.read_text()[-3000:]}", file=sys.stderr)

    FAILED.append(tell)


def field_of(number, name):
    words = ask("scontrol", "show", "job", "-o", number).split()
    return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), "")


def check(place):
    """Write the file, submit it, knock, and follow it to its end; returns what was seen."""
    run, script = place / "run", place / "job.sh"
    arguments = ["--model", "quickstart", "--device", "cpu", "--steps", str(STEPS), "--profile", "off"]
    arguments += ["--run-dir", str(run), "--gpus", "2", "--set", "log_every=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    written = [sys.executable, "-m", "gpudoc", "train", *arguments, "--slurm", str(script)]
    subprocess.run(written, check=True, cwd=place, env=environment)
    began = time.monotonic()
    submitted = ["sbatch", "--parsable", f"--cpus-per-task={os.cpu_count()}", str(script)]
    number = subprocess.run(submitted, check=True, cwd=place, env=environment, capture_output=True, text=True).stdout
    number = number.strip()
    wait_for("the tenth step", lambda: step_of(run) >= 10, 300)
    ask("scancel", "--batch", "--signal=USR1", number)
    tell_on_failure(place, number)
    wait_for("the requeue", lambda: field_of(number, "Restarts") == "1", 120)
    stopped_at = json.loads((run / "summary.json").read_text())
    wait_for("the second start", lambda: field_of(number, "JobState") == "RUNNING", 300)
    wait_for("the end", lambda: field_of(number, "JobState") in ("COMPLETED", "FAILED", "TIMEOUT"), 600)
    summary = json.loads((run / "summary.json").read_text())
    log = next(place.glob("*.log")).read_text()
    return {
        "state": field_of(number, "JobState"),
        "exit": field_of(number, "ExitCode"),
        "restarts": int(field_of(number, "Restarts")),
        "stopped_at": stopped_at,
        "summary": summary,
        "seconds": time.monotonic() - began,
        "log": log,
    }


FLEET = """
from gpudoc.fleet import stages
stages.QUICK = stages.Times(alone=0.5, together=0.5, steps=0.2, digests=0.2, sweep=1.0, pair=0.2, host=0.3)
"""


def check_fleet(place, nodes):
    """The job of `bench --across --slurm`, and another one that is cancelled while it measures; what was wrong."""
    (place / "sitecustomize.py").write_text(FLEET)
    # the names of these nodes stand for one machine, and no resolver knows them
    environment = {**os.environ, "PYTHONPATH": f"{place}:{ROOT}", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    # two nodes that are one: threads that wait by spinning take the cores from each other
    environment["OMP_WAIT_POLICY"] = "passive"
    arguments = ["bench", "--across", "--quick", "--device", "cpu", "--only", "steps,digests,collectives,pairs,clock"]
    arguments += ["--out", "fleet.json", "--slurm", "job.sh"]
    subprocess.run([sys.executable, "-m", "gpudoc", *arguments], check=True, cwd=place, env=environment)
    wide = [f"--nodes={nodes}", f"--ntasks-per-node={2 // nodes}"]

    def submit():
        done = subprocess.run(
            ["sbatch", "--parsable", *wide, "job.sh"],
            check=True,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def running():
        return [line for line in ask("ps", "ax", "-o", "pid,args").splitlines() if "gpudoc.fleet.child" in line]

    before = running()
    number = submit()
    tell_on_failure(place, number)
    wait_for("the end", lambda: field_of(number, "JobState") in ("COMPLETED", "FAILED", "TIMEOUT"), 600)
    record = json.loads((place / "fleet.json").read_text())
    missing = [node["missing"] for node in record["nodes"] if node["missing"]]
    wrong = [f"missing: {missing}"] if missing else []
    if [len(node["gpus"]) for node in record["nodes"]] != [2 // nodes] * nodes:
        wrong.append(f"the nodes have {[len(node['gpus']) for node in record['nodes']]} CPU ranks")
    if record["made"]["engine"] != "srun":
        wrong.append(f"the engine was {record['made']['engine']}")
    scopes = {measure["scope"] for measure in record["measures"]}
    second = submit()
    wait_for("a child of the second job", lambda: set(running()) - set(before), 300)
    ask("scancel", second)
    wait_for("the end of the second job", lambda: field_of(second, "JobState") == "CANCELLED", 120)
    with contextlib.suppress(SystemExit):
        wait_for("the last child", lambda: not set(running()) - set(before), 60)
    if left := set(running()) - set(before):
        wrong.append(f"after scancel there were left: {left}")
    ended = f"{field_of(number, 'JobState')} with {field_of(number, 'ExitCode')}"
    text = (
        f"`bench --across` from the file of --slurm: {nodes} slurmd, {2 // nodes} tasks each, measured "
        f"{sorted(scopes)}; the job ended {ended}; one that was cancelled left {len(left)} processes\n"
    )
    return text, wrong


def run_fleet():
    """On two slurmd where this SLURM allows it, else on one with two tasks."""
    for names in (("check1", "check2"), ()):
        FAILED.clear()
        try:
            place = tempfile.TemporaryDirectory(dir="/var/lib", prefix="slurm-check-")
            with place as folder, Cluster(Path(folder), names):
                return check_fleet(Path(folder), max(1, len(names)))
        except SystemExit as problem:
            print(f"{problem} with {len(names) or 1} slurmd", file=sys.stderr)
            if not names or "the nodes" not in str(problem):
                raise
    raise AssertionError("one of the two ran")


def judge(seen):
    """What is not as it must be, as sentences; empty when all is well."""
    steps = [seen["stopped_at"]["steps"], seen["summary"]["steps"]]
    wrong = []
    if seen["state"] != "COMPLETED" or seen["exit"] != "0:0":
        wrong.append(f"the job ended {seen['state']} with {seen['exit']}")
    if seen["restarts"] != 1:
        wrong.append(f"{seen['restarts']} restarts instead of 1")
    if not 10 <= steps[0] < STEPS or steps[1] != STEPS:
        wrong.append(f"stopped at step {steps[0]}, ended at {steps[1]} of {STEPS}")
    if seen["summary"].get("resumed_from") != f"step-{steps[0]}":
        wrong.append(f"resumed from {seen['summary'].get('resumed_from')}, not from step-{steps[0]}")
    return wrong


def install():
    missing = [name for name in ("slurmctld", "slurmd", "munged") if not shutil.which(name, path="/usr/sbin:/usr/bin")]
    if not missing:
        return False
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    options = ("-y", "-qq", "--no-install-recommends")
    subprocess.run(["apt-get", "install", *options, *PACKAGES], check=True, stdout=subprocess.DEVNULL)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--fleet", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("slurm-check: needs root for munged and slurmd")
    installed = options.install and install()
    version = ask("/usr/sbin/slurmctld", "-V").strip()
    commit = ask("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD").strip()
    head = (
        f"slurm-check {date.today()}: {version}, Python {platform.python_version()}, {os.cpu_count()} CPUs, gpudoc "
        f"{gpudoc.__version__} at {commit}\n\n"
    )
    try:
        if options.fleet:
            return tell(head, *run_fleet(), options.record)
        # not under a folder that others may write to, which munged refuses
        with tempfile.TemporaryDirectory(dir="/var/lib", prefix="slurm-check-") as folder, Cluster(Path(folder)):
            seen = check(Path(folder))
    finally:
        if installed:
            purge = ["apt-get", "purge", "-y", "-qq", "--autoremove", *PACKAGES]
            subprocess.run(purge, check=False, stdout=subprocess.DEVNULL)
    text = (
        f"2 gloo ranks, {STEPS} steps: saved at step {seen['stopped_at']['steps']} on USR1, queued again, went on from "
        f"{seen['summary'].get('resumed_from')}, ended {seen['state']} after {seen['restarts']} restart, "
        f"{seen['seconds']:.0f} s in all\n"
    )
    wrong = judge(seen)
    if wrong:
        print(seen["log"][-4000:], file=sys.stderr)
    return tell(head, text, wrong, options.record)


def tell(head, text, wrong, record):
    """Say what was seen, and keep it where nothing was wrong."""
    print(head + text + ("\n".join(wrong) or "as it must be"))
    if record and not wrong:
        record.write_text(f"# {head}{text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
