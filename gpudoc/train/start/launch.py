"""Starts several ranks: torchrun in a separate process, which gets the signals; the run has one exit code.

torchrun treats every exit status except 0 as a crash and starts all ranks again. A rank that ends on purpose (stopped,
finished with a bad answer, a user's mistake) therefore writes its exit code to a file and exits with 0.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.arguments import own_module, own_python
from gpudoc.process.ending import end_family, how_it_ended
from gpudoc.process.imports import uncollected
from gpudoc.process.lifetime import die_with_parent
from gpudoc.process.seal import KEY
from gpudoc.temporary import TemporaryFolder
from gpudoc.train.ranks.pulse import FOLDER, MEETING
from gpudoc.train.start.run_key import run_key
from gpudoc.train.watch.watching import speak

if TYPE_CHECKING:
    from gpudoc.train.watch.watch import RankWatch

EXIT_FILE = "GPUDOC_EXIT_FILE"
MAX_RESTARTS = 3
# a stopped rank may take this long to save; a rank that hangs in NCCL after its peer died delays a restart as long
SHUTDOWN_SECONDS = 120
# after one rank has ended with an error the others soon learn of it, or hang in NCCL
FOLLOW_SECONDS = 60
_LOOK_SECONDS = 1.0
_RENDEZVOUS = "rendezvous"
# a file system in memory, which supports locks
_MEMORY = Path("/dev/shm")
_AGENT = "from gpudoc.train.start.launch import agent; sys.exit(agent(sys.argv[1:]))"
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The machines of one run: how many, where they meet (a port, or a file for a single machine), and a name
    that no other run has.
    """

    count: int = 1
    endpoint: str = "localhost:0"
    run_id: str = ""

    @property
    def is_file(self) -> bool:
        """Whether they meet in a file."""
        return self.endpoint.startswith("/")


def choose_ranks(gpus: str | None, *, device: str, num_gpus: int) -> int:
    """How many ranks `--gpus` asks for on this machine: every GPU with auto; on a CPU the given number, else one."""
    on_gpu = device.startswith("cuda")
    if gpus is None or gpus == "auto":
        # 'cuda:1' names one GPU
        return max(1, num_gpus) if on_gpu and ":" not in device else 1
    if not gpus.isdecimal() or int(gpus) < 1:
        raise GpudocError(f"--gpus {gpus}: write auto, or 1 or more")
    count = int(gpus)
    if on_gpu and count > num_gpus:
        raise GpudocError(
            f"--gpus {count}: this machine has {num_gpus} usable",
            hint="use --gpus auto; gpudoc doctor shows what is missing",
        )
    if on_gpu and count > 1 and ":" in device:
        raise GpudocError(f"--gpus {count} and --device {device} contradict each other", hint="--device cuda")
    return count


def nodes_here(environment: Mapping[str, str] | None = None) -> Nodes:
    """The nodes of the SLURM step that runs this, if there are several; else this machine alone."""
    variables = os.environ if environment is None else environment
    count = variables.get("SLURM_STEP_NUM_NODES", "1")
    if not count.isdecimal() or int(count) < 2:
        return Nodes()
    host, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")
    if not host or not port:
        raise GpudocError(
            f"{count} nodes, but MASTER_ADDR and MASTER_PORT do not say where they meet",
            hint="gpudoc train --slurm FILE writes an sbatch file that sets them",
        )
    run_id = f"{variables.get('SLURM_JOB_ID', '0')}.{variables.get('SLURM_RESTART_COUNT', '0')}"
    return Nodes(count=int(count), endpoint=f"{host}:{port}", run_id=run_id)


@contextlib.contextmanager
def _meeting_place(folder: Path) -> Iterator[Path]:
    """Where the ranks of one machine meet in files: this private folder, or one in memory if this has no locks.

    GpudocError if neither supports locks: a port would let every user of the machine interfere.
    """
    if _knows_locks(folder):
        yield folder
        return
    with contextlib.ExitStack() as stack:
        try:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudoc-launch-", dir=_MEMORY)))
        except OSError:
            place = folder
        if not _knows_locks(place):
            raise GpudocError(
                f"the file system of {folder.parent} does not support locks, which the ranks need to meet",
                hint="use a folder on a local disk: TMPDIR=/another/folder gpudoc train ...",
            )
        yield place


def _knows_locks(folder: Path) -> bool:
    import fcntl

    try:
        with (folder / _RENDEZVOUS).open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class OnHang:
    """What to do if no rank makes progress: 'report' or 'end'; `go_on` is the command for a run's folder.

    `asks_nccl`: the ranks have GPUs, and their NCCL can report what it was doing.
    """

    then: str = "report"
    go_on: Callable[[Path], str] = str
    asks_nccl: bool = False


def launch(
    arguments: Sequence[str],
    *,
    ranks: int,
    nodes: Nodes | None = None,
    cpus: float = 1.0,
    on_hang: OnHang | None = None,
) -> int:
    """Run `gpudoc train` with `arguments` in `ranks` processes on this machine; returns the exit code of the run.

    HungError if the run was ended because no rank made progress.
    """
    from gpudoc.train.watch.recorder import switched_on
    from gpudoc.train.watch.watching import ended, watch_ranks

    nodes = nodes or Nodes()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(TemporaryFolder("launch"))
        environment = {EXIT_FILE: f"{folder}/exit", **os.environ, FOLDER: str(folder)}
        on_hang = on_hang or OnHang()
        if on_hang.asks_nccl:
            environment.update(switched_on(folder, environment))
        # a store kept by the agent would give restarted ranks the addresses of dead ranks
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        environment.setdefault("OMP_NUM_THREADS", str(max(1, int(cpus / ranks))))
        environment.setdefault("LOGLEVEL", "ERROR")
        place = Path(environment[EXIT_FILE])
        environment.pop(MEETING, None)
        if nodes.count == 1:
            meeting = stack.enter_context(_meeting_place(folder))
            nodes = replace(nodes, endpoint=f"{meeting}/{_RENDEZVOUS}")
            environment[MEETING], environment[KEY] = f"{meeting}/meeting", secrets.token_hex(32)
        else:
            environment[KEY] = stack.enter_context(run_key(os.environ, Path.cwd()))
        python, *program = own_module("gpudoc")
        # the output of a rank must appear immediately
        options = [*torchrun_options(ranks, nodes), "--no-python", python, "-u", *program]
        process = subprocess.Popen(
            [*own_python(_AGENT), str(os.getpid()), *options, "train", *arguments],
            env=environment,
            start_new_session=True,
        )
        watch = watch_ranks(folder, environment, on_hang.then)
        with _passing_on(process):
            status = _wait(process, place, watch)
            if status is None:
                assert watch.hung is not None
                end_family(process)
                raise ended(folder, watch.hung, on_hang.go_on)
        return _exit_code(place, status)


def torchrun_options(ranks: int, nodes: Nodes) -> list[str]:
    """The options for torchrun; the agent adds `options_of_this_torch`."""
    options = [f"--nproc-per-node={ranks}", f"--max-restarts={MAX_RESTARTS}", f"--nnodes={nodes.count}"]
    options += ["--rdzv-backend=gpudoc", f"--rdzv-endpoint={nodes.endpoint}"]
    if nodes.run_id:
        options.append(f"--rdzv-id={nodes.run_id}")
    if nodes.is_file:
        options.append("--rdzv-conf=store_type=file")
    if nodes.count == 1:
        options.append("--local-addr=127.0.0.1")
    return options


def agent(arguments: Sequence[str]) -> int:
    """Run torchrun in this process: `agent([parent's pid, torchrun options...])`; 0 if all ranks ended with 0."""
    with uncollected():
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.run import parse_args, run

        from gpudoc.train.start import rendezvous

    rendezvous.register()
    die_with_parent(int(arguments[0]), signal.SIGTERM)
    known = options_of_this_torch()
    if not any("SIGUSR1" in option for option in known):
        # these signals would kill an older torchrun; the process that started it sends SIGTERM instead
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    try:
        run(parse_args([*known, *arguments[1:]]))  # type: ignore[no-untyped-call]
    except ChildFailedError as problem:
        # a killed rank is the cause; a rank that lost it as a peer ends with its own exit code, perhaps at the same
        # moment, and torchrun checks ranks in the order of their numbers
        failures = problem.failures.items()
        rank, failure = min(failures, key=lambda each: (each[1].exitcode >= 0, each[1].timestamp))
        how = how_it_ended(failure.exitcode)
        speak(f"rank {rank} {how}; {MAX_RESTARTS} restarts are used up")
        return int(ExitCode.BAD_ANSWER)
    except Exception as problem:
        # torchrun raises its own type of error after a signal; the ranks have saved by now
        speak(f"torchrun: {problem}")
        return int(ExitCode.BAD_ANSWER)
    return 0


def end(code: int, *, lost_peer: bool = False) -> tuple[int, bool]:
    """(exit status, whether to print the reason) for a rank that ends on purpose, whatever started it.

    The exit code of the first such rank counts. A rank that only lost its peer crashes, so that all are started again,
    unless that peer ended on purpose.
    """
    place = os.environ.get(EXIT_FILE)
    if place is None or "RANK" not in os.environ:
        return code, True
    if lost_peer:
        ended = Path(place).exists()
        return (0, False) if ended else (int(ExitCode.BAD_ANSWER), True)
    if code == ExitCode.OK:
        return 0, True
    try:
        with Path(place).open("x", encoding="ascii") as stream:
            stream.write(str(int(code)))
    except FileExistsError:
        return 0, False
    except OSError:
        return code, True
    return 0, True


def exit_rank(status: int) -> NoReturn:
    """End this rank as Python would, with its threads and exit functions, but do not tear down the interpreter.

    A thread of gloo that frees its last tensor while the interpreter is torn down aborts the process, although the
    work succeeded. On a busy machine that thread is late, and destroy_process_group does not wait for a group that a
    sharded model still holds.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def options_of_this_torch() -> list[str]:
    """More options for torchrun, if it knows them. That requires its import, so only its own process calls this."""
    from torch.distributed.launcher.api import LaunchConfig

    wanted = {
        "signals_to_handle": "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
        "shutdown_timeout": f"--shutdown-timeout={SHUTDOWN_SECONDS}",
    }
    names = {field.name for field in dataclasses.fields(LaunchConfig)}
    return [option for name, option in wanted.items() if name in names]


def _exit_code(place: Path, status: int) -> int:
    try:
        return int(place.read_text("ascii"))
    except (OSError, ValueError):
        return 0 if status == 0 else int(ExitCode.BAD_ANSWER)


def _wait(process: subprocess.Popen[bytes], place: Path, watch: RankWatch) -> int | None:
    """The exit status of torchrun; ends ranks that hang after one of them has ended with an error.

    None if no rank makes progress and the run must be ended for it.
    """
    errors = (ExitCode.BAD_ANSWER, ExitCode.NOT_DONE, ExitCode.FAULT)
    told: float | None = None
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)
        if watch.look():
            return None
        if told is None and _exit_code(place, 0) in errors:
            told = time.monotonic()
        elif told is not None and time.monotonic() - told > FOLLOW_SECONDS:
            ended = end_family(process, patience_s=SHUTDOWN_SECONDS)
            killed = ", ".join(ended.killed)
            speak(f"{FOLLOW_SECONDS} s after a rank ended with an error, other ranks still hung; killed: {killed}")


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass signals to torchrun, which passes them to the ranks; a second Ctrl+C ends all ranks immediately."""
    interrupted = [0]

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGINT:
                interrupted[0] += 1
                if interrupted[0] > 1:
                    end_family(process, patience_s=0)
                    return
            process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    names = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
    before = {number: signal.signal(number, pass_on) for number in names}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            end_family(process, patience_s=SHUTDOWN_SECONDS)
