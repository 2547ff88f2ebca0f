"""The sbatch files of `bench --across` and of `doctor` on every node; pure, and readable by a person."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.process.arguments import AS_MODULE, without
from gpudoc.process.seal import KEY, NEW_KEY
from gpudoc.shell import quote_path
from gpudoc.train.start.slurm import job_lines, log_lines
from gpudoc.writing import write_whole

# defaults for the user to edit; two is the smallest number of nodes that can differ
_NODES, _GPUS_PER_NODE, _MINUTES = 2, 8, 60
# a task that ends with an error must not end the others, which name it
_SRUN = "srun --kill-on-bad-exit=0 --wait=0 --cpu-bind=none"


def write_bench_job(place: Path, arguments: Sequence[str], *, on_gpu: bool) -> str:
    """Write the job of `gpudoc bench --across` with these arguments; returns the message for the user."""
    own = without(arguments, "--slurm", flags=("--plain",))
    command = f"{shlex.join([sys.executable, *AS_MODULE])} gpudoc bench {shlex.join(own)} --plain"
    body = [
        "# one task per node measures all of its GPUs; the first one writes and prints the findings, and its exit",
        "# code is the job's",
        "# with this key, orders from anybody else are refused; it is passed only in the environment",
        f"export {KEY}={NEW_KEY}",
        f"{_SRUN} {command}",
    ]
    return _write(place, "gpudoc-fleet", body, on_gpu=on_gpu)


def write_doctor_job(place: Path, arguments: Sequence[str], *, on_gpu: bool) -> str:
    """Write the job that examines every node and compares them; returns the message for the user."""
    own = without(arguments, "--slurm", "--out", flags=("--plain", "--json", "--markdown"))
    python = shlex.join([sys.executable, *AS_MODULE])
    doctor = f"{python} gpudoc doctor {shlex.join(own)}".strip()
    each = f'exec {doctor} --plain --out "$FOUND/$SLURM_NODEID.json" > "$FOUND/$SLURM_NODEID.txt" 2>&1'
    body = [
        'export FOUND="$PWD/doctor-$SLURM_JOB_ID"',
        'mkdir -p "$FOUND" || exit 2',
        "# a number for each node, with SLURM's name for it",
        'scontrol show hostnames "$SLURM_JOB_NODELIST" | cat -n > "$FOUND/nodes.txt"',
        f"{_SRUN} bash -c {shlex.quote(each)}",
        "code=$?",
        "",
        "# what each node reports, and what differs between them",
        'for said in "$FOUND"/[0-9]*.txt; do echo "== node $(basename "$said" .txt)"; cat "$said"; done',
        "shopt -s nullglob",
        'set -- "$FOUND"/[0-9]*.json',
        f'[ "$#" -lt 2 ] || {python} gpudoc doctor --plain "$@" || code=1',
        'if [ "$#" -lt "$SLURM_JOB_NUM_NODES" ]; then',
        '    echo "only $# of $SLURM_JOB_NUM_NODES nodes answered; their numbers are the names of the files in $FOUND"',
        "    code=1",
        "fi",
        'exit "$code"',
    ]
    return _write(place, "gpudoc-doctor", body, on_gpu=on_gpu)


def _write(place: Path, name: str, body: Sequence[str], *, on_gpu: bool) -> str:
    header = [
        *job_lines(name),
        f"#SBATCH --nodes={_NODES}",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive                  # otherwise other jobs on the node would be measured too",
        *([f"#SBATCH --gpus-per-node={_GPUS_PER_NODE}            # all GPUs of a node"] if on_gpu else []),
        f"#SBATCH --time=00:{_MINUTES - 1}:00",
        *log_lines(name),
    ]
    text = "\n".join([*header, f"cd {shlex.quote(str(Path.cwd()))} || exit 2", "", *body]) + "\n"
    write_whole(place, text, hint="--slurm job.sh", executable=True)
    return f"{escape_line(place)} is written; look it over, then run: sbatch {quote_path(place)}"
