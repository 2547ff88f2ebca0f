"""Thirteen planted faults in front of tune's trials: each must be told apart, and nothing may be left behind.

    python campaigns/tune_faults.py [--only NAME,...] [--record]
    python campaigns/tune_faults.py --kills [--record]     # kill -9 after every record of the journal

Each fault is planted in a real workload and meets real processes. After each: no process of the trial, no file in
/dev/shm, no temporary folder. --record writes records/<date>-tune-faults.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoc.profile.model import Loader  # noqa: E402
from gpudoc.tune.trial.fork_client import trial_error  # noqa: E402
from gpudoc.tune.trial.launcher import Launcher, Where  # noqa: E402
from gpudoc.tune.trial.messages import End, Trial, TrialRequest  # noqa: E402
from gpudoc.units import GIB  # noqa: E402
from tests.tune.planted import write_workload  # noqa: E402

RECORDS = Path(__file__).resolve().parents[1] / "records"
# a hang is told after this much silence here; tune itself waits a minute, or 20 expected steps
SILENCE_S = 8.0
CPU = Where(device="cpu", limit_bytes=GIB, silence_s=SILENCE_S)


@dataclass
class Row:
    """What came of one fault."""

    fault: str
    expected: str
    ended: str
    words: str
    seconds: float
    orphans: int = 0
    shm_files: int = 0
    folders: int = 0
    also: dict[str, object] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Classified as it should be, and nothing left behind."""
        return self.ended == self.expected and not (self.orphans or self.shm_files or self.folders)


def fit(batch: int) -> TrialRequest:
    """The first steps at `batch`."""
    return TrialRequest(kind="fit", batches=(batch,))


def steady(batch: int) -> TrialRequest:
    """The whole script at `batch`."""
    return TrialRequest(kind="steady", batches=(batch,), steps=16)


# name -> (what is planted, the request that meets it, the end, the stage or None, words that must be said)
TRIALS: dict[str, tuple[dict, TrialRequest, End, str | None, str]] = {
    "raise at b": ({"fault": "raise", "at": 16}, fit(16), End.USER_ERROR, "train", "planted: batch 16 is refused"),
    "SIGKILL": ({"fault": "sigkill", "at": 16}, fit(16), End.SIGNAL, "train", "SIGKILL"),
    "hang in backward": ({"fault": "hang", "at": 16}, fit(16), End.HANG, "train", "no sign of life"),
    "SIGBUS": ({"fault": "sigbus", "at": 16}, fit(16), End.OOM_SHM, "train", "/dev/shm"),
    "segfault": ({"fault": "segfault", "at": 16}, fit(16), End.SIGNAL, "train", "SIGSEGV"),
    "leak of 1 MiB a step": ({"fault": "leak", "at": 1}, steady(16), End.LEAK, "steady", "MiB with every step"),
    "OOM only in eval": ({"fault": "eval", "at": 16}, steady(16), End.OOM_HOST, "eval", ""),
    "OOM only on the longest sample": (
        {"fault": "longest", "at": 1, "data": {"lengths": True}},
        fit(16),
        End.OOM_HOST,
        "train",
        "",
    ),
    "OOM only in the last partial batch": (
        {"fault": "partial", "at": 512 % 25},
        steady(25),
        End.OOM_HOST,
        "partial batch",
        "",
    ),
    "int32 limit": ({"fault": "int32", "at": 16}, fit(16), End.INDEX_LIMIT, "train", "canUse32BitIndexMath"),
    "slow import": ({}, fit(16), End.FITS, None, ""),
    "death of a loader worker": (
        {"data": {"die_at": 0}},
        TrialRequest(kind="joint", batches=(8,), feed=Loader(num_workers=2), seconds_per_batch=1.0),
        End.WORKER_DIED,
        None,
        "DataLoader worker",
    ),
}
FULL_DISK = "full disk for the journal"
FAULTS = (*TRIALS, FULL_DISK)


def ownerless_shm() -> set[Path]:
    """torch's files in /dev/shm whose process, which stands in their names, is gone: others' living ones are theirs."""
    return {p for p in Path("/dev/shm").glob("torch_*") if not Path(f"/proc/{p.name.split('_')[1]}").exists()}


@contextlib.contextmanager
def nothing_left(row: Callable[[], Row]) -> Iterator[None]:
    """Counts into the row what is left of what was started inside."""
    shm, folders = ownerless_shm(), set(Path(tempfile.gettempdir()).glob("gpudoc-*"))
    yield
    orphans = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    found = row()
    found.orphans = len(orphans)
    found.shm_files = len(ownerless_shm() - shm)
    found.folders = len(set(Path(tempfile.gettempdir()).glob(f"gpudoc-tune-{os.getpid()}-*")) - folders)


def run_fault(name: str) -> Row:
    """Plant one fault, run into it, and say what came of it."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, nothing_left(lambda: rows[0]):
        rows.append(_full_disk(Path(folder)) if name == FULL_DISK else _trial(name, Path(folder)))
    return rows[0]


def _trial(name: str, folder: Path) -> Row:
    plant, request, end, stage, says = TRIALS[name]
    start = time.monotonic()
    slow = {"PLANT_SLOW_IMPORT": str(SILENCE_S + 4)} if name == "slow import" else {}
    os.environ.update(slow)
    try:
        with Launcher(str(write_workload(folder, **plant))) as launcher:
            trial = launcher.run(request, CPU)
            after = launcher.run(fit(4), CPU) if trial.end in (End.SIGNAL, End.HANG) else trial
            left = _strangers(launcher)
    finally:
        for key in slow:
            del os.environ[key]
    right = trial.end is end and stage in (None, trial.stage) and says in _words(trial)
    expected = end.value if stage is None else f"{end.value} in {stage}"
    ended = trial.end.value if stage is None else f"{trial.end.value} in {trial.stage}"
    also = {"next trial fits": after.fits} if after is not trial else {}
    row = Row(name, expected, ended if right else f"{ended}: {_words(trial)}", trial.detail, 0.0, also=also)
    row.seconds = round(time.monotonic() - start, 1)
    if left:
        row.ended += f"; {left} processes besides the warm one were left while it ran"
    return row


def _words(trial: Trial) -> str:
    return trial_error(trial).message if trial.traceback else trial.detail


def _strangers(launcher: Launcher) -> int:
    """Processes under this one that are not the launcher's warm processes, once the trial is over."""
    del launcher
    own = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    server = "gpudoc.tune.trial.fork_server"
    return sum(1 for p in own if server not in " ".join(p.cmdline()) or p.ppid() != os.getpid())


def _tune(folder: Path, budget: str = "30s", within: Sequence[str] = (), **options: object) -> subprocess.Popen[str]:
    """A small real search: four to ten records in its journal; `within` is the command that starts it."""
    arguments = ["tune", "--model", "cfg.yaml", "--device", "cpu", "--memory-limit", "1GiB", "--out", "profile.yaml"]
    arguments += ["--only", "batch,speed", "--max-batch", "16", "--budget", budget, "--plain"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "XDG_DATA_HOME": str(folder / "data"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    pipe = subprocess.PIPE
    line = [*within, sys.executable, "-m", "gpudoc", *arguments]
    return subprocess.Popen(line, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True, **options)  # type: ignore[call-overload, no-any-return]


def _journal(folder: Path) -> Path | None:
    return next(iter((folder / "data" / "gpudoc" / "journals").glob("*.jsonl")), None)


def _learned(folder: Path) -> dict[str, object]:
    profile = yaml.safe_load((folder / "profile.yaml").read_text())
    for part in profile["evidence"]["parts"]:
        part.pop("at")
    return {key: value for key, value in profile.items() if key != "made"}


def _full_disk(folder: Path) -> Row:
    write_workload(folder)
    start = time.monotonic()
    journals = folder / "data" / "gpudoc" / "journals"
    journals.mkdir(parents=True)
    # a file system of one page, which only this search sees: the header fits, and not every record
    mounted = 'mount -t tmpfs -o size=4k none "$0" && exec "$@"'
    with _tune(folder, "45s", ["unshare", "-rm", "sh", "-c", mounted, str(journals)]) as search:
        _, err = search.communicate(timeout=300)
    said = "Cannot write the journal (No space left on device)"
    ended = "said, and the search goes on" if said in err and (folder / "profile.yaml").exists() else err[-300:]
    words = next((line.strip() for line in err.splitlines() if said in line), "")
    row = Row(FULL_DISK, "said, and the search goes on", ended, words, round(time.monotonic() - start, 1))
    if search.returncode != 0:
        row.ended += f"; exit code {search.returncode}"
    return row


def run_kills() -> Row:
    """Kill -9 the search after every record, until one run ends by itself; then once more on the whole journal."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, nothing_left(lambda: rows[0]):
        folder = Path(name)
        write_workload(folder)
        start = time.monotonic()
        kills, orphans = 0, 0
        while True:
            search = _tune(folder, start_new_session=True)
            if not _kill_after_next_record(search, folder):
                break
            kills += 1
            orphans += _left_of(search)
        journal = _journal(folder)
        assert journal is not None
        lines = journal.read_text().splitlines()[1:]
        learned = _learned(folder)
        _tune(folder).communicate(timeout=300)
        requests = [json.dumps(json.loads(line)["request"], sort_keys=True) for line in lines]
        repeated = len(requests) - len(set(requests))
        same = _learned(folder) == learned and len(journal.read_text().splitlines()) - 1 == len(lines)
        ended = f"{repeated} trials repeated, {'the same profile' if same else 'ANOTHER profile'}"
        words = f"{kills} kills, {len(lines)} records"
        row = Row("kill -9 after every record", "0 trials repeated, the same profile", ended, words, 0.0)
        row.seconds = round(time.monotonic() - start, 1)
        if orphans:
            row.ended += f"; {orphans} processes outlived a kill"
        rows.append(row)
    return rows[0]


def _kill_after_next_record(search: subprocess.Popen[str], folder: Path) -> bool:
    """Kill the search when its journal has grown by a record; False when it ended by itself before that."""

    def count() -> int:
        journal = _journal(folder)
        return len(journal.read_bytes().splitlines()) if journal else 0

    before = max(1, count())
    search_tree[search.pid] = []
    while search.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            search_tree[search.pid] = psutil.Process(search.pid).children(recursive=True) or search_tree[search.pid]
        if count() > before:
            search.kill()
            search.communicate()
            return True
        time.sleep(0.02)
    _, err = search.communicate()
    if search.returncode != 0:
        raise SystemExit(f"the search ended with {search.returncode}: {err[-500:]}")
    return False


search_tree: dict[int, list[psutil.Process]] = {}


def _left_of(search: subprocess.Popen[str]) -> int:
    """How many processes of a killed search are there 20 s later."""
    _, alive = psutil.wait_procs(search_tree.pop(search.pid), timeout=20)
    return sum(1 for process in alive if process.status() != psutil.STATUS_ZOMBIE)


def record(rows: list[Row]) -> Path:
    """The rows as Markdown with machine, versions and commit; earlier rows of today stand where not run again."""
    import torch

    path = RECORDS / f"{datetime.date.today()}-tune-faults.md"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    cpu = next((r for r in Path("/proc/cpuinfo").read_text().splitlines() if r.startswith("model name")), "")
    right = sum(row.is_right for row in rows)
    machine = f"torch {torch.__version__}, Python {platform.python_version()}, CPU{cpu.partition(':')[2]}"
    machine += f", {os.cpu_count()} cores, Linux {platform.release().partition('-')[0]}"
    left = f"{sum(r.orphans for r in rows)} orphans, {sum(r.shm_files for r in rows)} files left in /dev/shm"
    left += f", {sum(r.folders for r in rows)} temporary folders left"
    lines = [
        "# Planted faults in tune's trials",
        "",
        f"{datetime.date.today()}, commit {commit.stdout.strip()}, {machine}.",
        "",
        f"{right} of {len(rows)} as expected, {left}. A hang is told after {SILENCE_S:.0f} s here.",
        "",
        "| fault | ended as | said | s | as expected |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        also = "".join(f"; {key}: {value}" for key, value in row.also.items())
        said = row.words.replace("|", "/")[:140]
        lines.append(
            f"| {row.fault} | {row.ended}{also} | {said} | {row.seconds} | {'yes' if row.is_right else 'NO'} |"
        )
    RECORDS.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> int:
    """Run the faults; the exit code is 1 when one was not told apart or left something behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FAULTS))
    parser.add_argument("--kills", action="store_true", help="only the chain of kills")
    parser.add_argument("--record", action="store_true", help="run all of it and write the record")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    runs: list[Callable[[], Row]] = []
    if not options.kills:
        runs += [lambda name=name: run_fault(name) for name in options.only.split(",")]  # type: ignore[misc]
    if options.kills or options.record:
        runs.append(run_kills)
    rows = []
    for run in runs:
        row = run()
        rows.append(row)
        left = f"{row.orphans} orphans, {row.shm_files} in /dev/shm, {row.folders} folders"
        print(f"{'ok ' if row.is_right else 'BAD'} {row.fault}: {row.ended} ({row.seconds} s; {left})", flush=True)
    if options.record:
        print(record(rows))
    return 0 if all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
