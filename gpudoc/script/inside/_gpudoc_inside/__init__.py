"""Sees what a training script does, from inside its process, and builds its loaders as ordered; never changes the rest.

It touches: `DataLoader.__init__` and `__iter__`, `__next__` of its iterators, `autocast.__enter__`, `sys.excepthook`,
torch's global hook after optimizer steps, and in a trial that has a limit torch's share of the GPU's memory. Where a
record or lines are asked for: `torch.autograd.backward`, `torch.save`, a hook of modules, and the seed of all random
numbers, which the script may set after that. Standard
library only, since the script's Python may be another one.
"""

from __future__ import annotations

from . import arrival, ending, limits, precision
from .backwards import BackwardCalls
from .feed import BatchFeed
from .loaders import Loaders
from .pulse import RankPulse
from .recorder import StateRecorder
from .report import HookReport
from .sampling import LineSampler
from .steps import Steps


def start(folder: str) -> HookReport:
    """Wait for torch, in this process and in those that it forks; nothing is imported and nothing touched before."""
    report = HookReport(folder)
    pulse = RankPulse(report)
    feed = BatchFeed(report, pulse)
    loaders = Loaders(report, feed)
    backwards = BackwardCalls(report)
    recorder, sampler = StateRecorder(report, backwards), LineSampler(report, backwards)
    steps = Steps(report, feed, pulse, recorder, sampler)

    def torch_is_here(module: object) -> None:
        report.torch_is_here(module)
        limits.limit_device(report, module)
        pulse.builds()
        recorder.torch_is_here(module)
        sampler.torch_is_here(module)
        backwards.torch_is_here(module)

    def guarded(action: arrival.Action) -> arrival.Action:
        def run(module: object) -> None:
            with report.guard(action.__name__):
                action(module)

        return run

    ending.watch(report, steps.finish)
    arrival.wait_for(
        {
            "torch": guarded(torch_is_here),
            "numpy": guarded(recorder.numpy_is_here),
            "torch.utils.data.dataloader": guarded(loaders.torch_is_here),
            "torchdata.stateful_dataloader.stateful_dataloader": guarded(loaders.torchdata_is_here),
            "torch.optim.optimizer": guarded(steps.torch_is_here),
            "torch.amp.autocast_mode": guarded(precision.watch(report)),
        }
    )
    return report
