"""The preparation of a process that starts trials: what it reads once, and whether it may be forked afterwards."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gpudoc.process import stacks
from gpudoc.train.data.draws import NUMPY, PYTHON, TORCH, seed
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.samples import Samples, collect_samples
from gpudoc.workload.build import Workload, load_workload

_TEST_SECONDS = 20
# more than torch's grain size of 32,768, so that every thread takes part
_TEST_NUMBERS = 1 << 20
# the exit status of a forked process in which CUDA does not work
_CUDA = 3
# the training process also has these modules in memory
_TRAINER = ("gpudoc.train.run", "gpudoc.train.start.build", "gpudoc.train.watch.watching", "gpudoc.train.report.finish")
_ASKS_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def import_beforehand() -> None:
    """Import most modules of `prepare`, without the workload."""
    with _asking_nvml():
        _import_what_steps_import()


def prepare(source: str) -> Prepared:
    """The workload named `source` with the samples that trials repeat; passes on errors of the user's code."""
    num_threads = torch.get_num_threads()
    # a pool of OpenMP threads does not survive a fork, so nothing may run in parallel before it
    torch.set_num_threads(1)
    with _asking_nvml():
        workload = load_workload(source)
        workload.step()
        _import_what_steps_import()
        _make_an_optimizer(workload)
        # each fork server reads the same samples, so that losses can be compared between them
        seed(PYTHON | NUMPY | TORCH, workload.config.train.seed)
        samples = collect_samples(workload)
        # samples that cannot be collated raise their error here, before any trial
        samples.typical(min(8, samples.count))
        samples.worst(min(2, samples.count))
        held_out = workload.eval_dataset
        has_eval = held_out is not None and hasattr(held_out, "__len__")
        eval_samples = Samples(held_out, workload.collate, len(held_out)) if has_eval else None  # type: ignore[arg-type]
    return Prepared(
        workload=workload,
        samples=samples,
        eval_samples=eval_samples,
        num_threads=num_threads,
        num_started=stacks.num_threads(),
    )


def why_not_fork(num_threads: int) -> str:
    """Why no trial may be forked from this process, as a test in a forked process shows; empty if it may."""
    if threading.active_count() > 1:
        return "a thread was started while the workload was imported"
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # only the kernel's own handler can end a process that waits for a thread missing after the fork
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_TEST_SECONDS)
            status = _CUDA if not _cuda_works() else 0 if _threads_work(num_threads) else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return ""
    if os.waitstatus_to_exitcode(status) == _CUDA:
        return "CUDA was initialised while the workload was imported"
    return "a process forked from it cannot compute"


def _cuda_works() -> bool:
    """Whether CUDA works here, or is absent: it does not work in a fork of a process that has initialised it."""
    if torch.cuda._is_in_bad_fork():
        return False
    return torch.cuda.device_count() == 0 or torch._C._cuda_getDeviceCount() > 0


def _threads_work(num_threads: int) -> bool:
    torch.set_num_threads(num_threads)
    return int(torch.ones(_TEST_NUMBERS).add(1).sum()) == 2 * _TEST_NUMBERS


@contextmanager
def _asking_nvml() -> Iterator[None]:
    """Let `torch.cuda.is_available` ask NVML, so that a module that calls it at import does not initialise CUDA.

    https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html
    """
    before = os.environ.get(_ASKS_NVML)
    os.environ[_ASKS_NVML] = "1" if before is None else before
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ASKS_NVML]


def _import_what_steps_import() -> None:
    """Import the modules of a training's first step, which takes two seconds.

    This does not run a step, because every optimizer asks CUDA whether the current stream is being captured.
    """
    import torch._dynamo
    import torch.profiler  # noqa: F401

    for name in _TRAINER:
        importlib.import_module(name)


def _make_an_optimizer(workload: Workload) -> None:
    """Import the modules that optimizers import when they are made."""
    # a failure here happens again in a trial, which reports it
    try:
        workload.build_optimizer(torch.nn.Linear(1, 1))
    except Exception:
        return
