"""An sbatch file that a person can read: requeue, a signal before the limit, a doctor on every node first; pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import gpudoc
from gpudoc.patterns import Pattern
from gpudoc.process.arguments import AS_MODULE
from gpudoc.process.seal import KEY, NEW_KEY

# SLURM sends the signal this long before the time limit: enough for a step, a checkpoint and torchrun's end
SIGNAL_SECONDS = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """The content of the sbatch file; `ranks` are processes per node, on GPUs or on a CPU.

    With a `command`, which starts its ranks and saves its state itself, the job gets no signal before its time limit
    and is not queued again.
    """

    name: str
    arguments: Sequence[str]
    python: str
    folder: str
    ranks: int
    on_gpu: bool
    nodes: int = 1
    cpus_per_rank: int = 4
    hours: int = 4
    command: Sequence[str] = ()


def sbatch_text(job: SlurmJob) -> str:
    """The file's text. Submit it with `sbatch FILE`; it queues itself again until the training is finished."""
    parts = [*_header(job), *_folder(job), *_doctor(job), *_run_command(job)]
    if not job.command:
        parts = [*_header(job), *_folder(job), *_meeting(), *_doctor(job), *_run(job)]
    return "\n".join(parts) + "\n"


def _header(job: SlurmJob) -> list[str]:
    rows = [
        *job_lines(job.name),
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1          # one launcher per node, which starts the ranks",
        f"#SBATCH --cpus-per-task={max(1, job.ranks * job.cpus_per_rank)}",
        *([f"#SBATCH --gpus-per-node={job.ranks}"] if job.on_gpu else []),
        f"#SBATCH --time={job.hours:02d}:00:00",
    ]
    if job.command:
        rows += [
            "#SBATCH --no-requeue                 # it would start over; remove this if the script resumes itself",
            f"##SBATCH --signal=B:TERM@{SIGNAL_SECONDS}          # for a script that saves its state when asked to end",
        ]
    else:
        rows += [
            f"#SBATCH --signal=B:USR1@{SIGNAL_SECONDS}            # this long before the limit: save and queue again",
            "#SBATCH --requeue                    # also after a node failure or a preemption",
            "#SBATCH --open-mode=append           # a requeued job continues in the same log",
        ]
    return [*rows, *log_lines(job.name)]


def job_lines(name: str) -> list[str]:
    """The first lines of every sbatch file."""
    return [
        "#!/bin/bash",
        f"# Written by gpudoc {gpudoc.__version__}. Adapt these lines to your cluster: time, nodes, account.",
        f"#SBATCH --job-name={_job_name(name)}",
    ]


def _job_name(name: str) -> str:
    """A word that needs no quotes: a line end in the head of an executable file would begin a command."""
    return Pattern(r"[^A-Za-z0-9_.-]+").sub("-", name).strip("-") or "gpudoc"


def log_lines(name: str) -> list[str]:
    """The last lines of the head of every sbatch file."""
    return [f"#SBATCH --output={_job_name(name)}-%j.log", "##SBATCH --partition=", "##SBATCH --account=", ""]


def _folder(job: SlurmJob) -> list[str]:
    return [f"cd {shlex.quote(job.folder)} || exit 2", ""]


def _meeting() -> list[str]:
    return [
        "# the ranks meet on the first node, at a port that only this job uses",
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
        "# the ranks write here how the run ended (in a folder that all nodes share)",
        'GPUDOC_EXIT_FILE="$PWD/.gpudoc-exit-$SLURM_JOB_ID"',
        'rm -f "$GPUDOC_EXIT_FILE"',
        "# anyone with this key can give the ranks orders, so it is passed only in the environment and never printed",
        f"{KEY}={NEW_KEY}",
        f"export MASTER_ADDR MASTER_PORT GPUDOC_EXIT_FILE {KEY}",
        "",
    ]


def _doctor(job: SlurmJob) -> list[str]:
    doctor = f"{shlex.join([job.python, *AS_MODULE])} gpudoc doctor --quick --plain"
    doctor += f" --expect-gpus {job.ranks}" if job.on_gpu else ""
    return ["# every node is examined before any of them trains", f"srun {doctor} || exit 1", ""]


def _run_command(job: SlurmJob) -> list[str]:
    words = [job.python, *AS_MODULE, "gpudoc", "train", *job.arguments, "--plain", "--", *job.command]
    # exec replaces the shell, which would hold back a signal until the program has ended
    return [f"exec {shlex.join(words)}"]


def _run(job: SlurmJob) -> list[str]:
    words = [job.python, *AS_MODULE, "gpudoc", "train", *job.arguments, "--gpus", str(job.ranks), "--plain"]
    return [
        f"srun --kill-on-bad-exit=0 {shlex.join(words)} &",
        "training=$!",
        "# bash gets the signal; srun passes SIGUSR1 on (at SIGTERM it would kill the ranks), and the training saves",
        "# its state and exits with 75",
        "trap 'kill -USR1 \"$training\"' USR1 TERM",
        'wait "$training"; code=$?',
        'while kill -0 "$training" 2>/dev/null; do wait "$training"; code=$?; done',
        'rm -f "$GPUDOC_EXIT_FILE"',
        "",
        'if [ "$code" -eq 75 ]; then',
        '    echo "saved; queued again at $(date +%FT%T)"',
        '    scontrol requeue "$SLURM_JOB_ID"',
        "fi",
        'exit "$code"',
    ]
