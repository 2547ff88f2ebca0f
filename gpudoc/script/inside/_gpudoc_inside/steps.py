"""Optimizer steps: how long each took, how much of that it waited for data, and which loader fed it."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .batches import BatchFeed, GpuClock, Stretch
from .report import HookReport, RankPulse, cuda, is_worker, peaks, ranks_of_torch

if TYPE_CHECKING:
    from .recorder import StateRecorder
    from .sampling import LineSampler

# how often new steps are reported, in seconds
_EVERY_S = 0.5
_EVERY_RUN_S = 2.0
# if the counted optimizer is idle while another one makes this many steps, the other one is counted
_MAX_WITHOUT = 4
# a NaN loss makes every weight NaN that it depends on, so the smallest weights are enough
_MOST_WEIGHTS = 16

_entered: str | None = None


class _Piece:
    """Consecutive steps, reported once the GPU has finished them: one step, or the steps of some seconds in a run."""

    __slots__ = ("count", "digests", "evaluated", "mark", "samples", "seconds", "wait_s", "waits")

    def __init__(self, count: int, seconds: float, mark: Any) -> None:
        self.count, self.seconds, self.mark = count, seconds, mark
        self.wait_s = 0.0
        self.waits: list[tuple[Any, Any, float]] = []
        self.samples: int | None = None
        self.digests: list[str] = []
        self.evaluated = False

    def wait_for(self, stretch: Stretch) -> None:
        self.wait_s += stretch.wait_s
        self.waits += stretch.waits
        self.digests += stretch.digests
        if stretch.samples is not None:
            self.samples = (self.samples or 0) + stretch.samples


class Steps:
    """The steps of the optimizer that steps first in each round; others (a discriminator's) are part of them."""

    def __init__(
        self,
        report: HookReport,
        feed: BatchFeed,
        pulse: RankPulse,
        recorder: StateRecorder | None,
        sampler: LineSampler | None,
    ) -> None:
        self._report, self._feed, self._pulse = report, feed, pulse
        self._recorder, self._sampler = recorder, sampler
        self._is_run = report.is_run
        feed.turning = self._turn
        self._every = _EVERY_RUN_S if report.is_run else _EVERY_S
        self._main: int | None = None
        self._others: dict[int, int] = {}
        self._forget()

    def _forget(self) -> None:
        self._process = self._report.process
        self._trains = False
        # steps made; settled steps: their samples are known; closed steps: the GPU has finished them too
        self._count = self._settled = self._closed = 0
        self._told = 0
        self._pieces: list[_Piece] = []
        self._mark: Any = None
        self._gpu = self._feed.gpu = GpuClock()
        self._ranks: tuple[int | None, int | None] = (None, None)
        self._last: float | None = None
        # the time of the last step while it is not settled
        self._stepped: float | None = None
        self._told_at = time.perf_counter()
        self._warm_at: float | None = None
        self._first_at, self._warm_count = 0.0, 0
        self._loader: int | None = None
        self._seconds = self._wait_s = self._evaluate_s = 0.0
        self._samples: int | None = None
        self._device, self._format = "cpu", ""
        self._measured = False
        # a weak reference to the counted optimizer, and whether its weights were finite when last checked
        self._optimizer: Any = None
        self._finite: bool | None = None
        self._empty()

    def _empty(self) -> None:
        self._lists: dict[str, list[Any]] = {name: [] for name in ("seconds", "wait_s", "samples", "digests")}
        self._evaluated: list[int] = []

    def torch_is_here(self, module: Any) -> None:
        """Listen to each step of every optimizer through torch's global hook."""
        handle = module.register_optimizer_step_post_hook(self._hook)
        self._report.undo.append(handle.remove)

    def _hook(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._report.off:
            return
        try:
            if self._process != self._report.process:
                # this is a fork of a process that may have trained itself
                self._forget()
            if self._counts(id(optimizer)) and (self._trains or not is_worker()):
                self._trains = True
                now = time.perf_counter()
                if self._recorder is not None:
                    self._recorder.stepped(optimizer)
                if self._is_run and self._count and now - self._told_at < self._every:
                    # a run only needs sums: they are taken for a report, or when the script draws from another loader
                    self._count += 1
                    self._pulse.steps(self._count)
                    self._stepped = now
                    if self._pieces:
                        self._tell_closed(now)
                else:
                    self._step(optimizer, now)
        except Exception as problem:
            self._report.step_aside("a step", problem)

    def _counts(self, optimizer: int) -> bool:
        if self._main is None or optimizer == self._main:
            self._main = optimizer
            if self._others:
                self._others.clear()
            return True
        self._others[optimizer] = self._others.get(optimizer, 0) + 1
        if self._others[optimizer] < _MAX_WITHOUT:
            return False
        self._main = optimizer
        self._others.clear()
        return True

    def _step(self, optimizer: Any, now: float) -> None:
        if self._last is None:
            self._last = max(self._feed.first_asked or 0.0, self._report.began)
            parameter = optimizer.param_groups[0]["params"][0]
            self._device, self._format = str(parameter.device), str(parameter.dtype).replace("torch.", "")
            self._gpu.start(parameter.device)
            self._first_at = now
        if self._optimizer is None or self._optimizer() is not optimizer:
            self._optimizer = weakref.ref(optimizer)
        self._count += 1
        self._feed.steps = self._count
        self._settle(now)
        self._pulse.steps(self._count)
        if self._sampler is not None:
            self._sampler.stepped(self._count)
        if self._is_measured(now):
            self._measured = True
            self._close(wait=True)
            self._finite = are_finite(optimizer)
            self._tell(now)
            self._tell_what_was_asked()
            self._report.tell("measured")
            if self._recorder is not None:
                self._recorder.hold()
        elif now - self._told_at >= self._every or self._count == 1:
            self._told_at = now
            self._tell_closed(now)

    def _turn(self) -> None:
        if self._stepped is not None:
            self._settle(self._stepped)

    def _settle(self, now: float) -> None:
        """Record the steps since the last settled one; the GPU may not have finished them."""
        piece = _Piece(self._count - self._settled, now - (self._last or now), self._gpu.mark())
        self._last, self._stepped, self._settled = now, None, self._count
        self._fill(piece, self._feed.taken())
        self._pieces.append(piece)

    def _fill(self, piece: _Piece, drawn: list[Stretch]) -> None:
        """Add the batches of these steps, their samples and digests; evaluation is counted separately."""
        if len(drawn) == 1:
            self._loader = drawn[0].loader
            piece.wait_for(drawn[0])
            return
        trained = [stretch.loader for stretch in drawn if stretch.grad] or [stretch.loader for stretch in drawn[-1:]]
        if trained:
            self._loader = trained[-1]
        for index, stretch in enumerate(drawn):
            if stretch.loader == self._loader:
                piece.wait_for(stretch)
            else:
                following = drawn[index + 1].began if index + 1 < len(drawn) else stretch.ended
                self._evaluate_s += max(0.0, following - stretch.began)
                piece.evaluated = True

    def _close(self, wait: bool = False) -> None:
        """Add up the steps that the GPU has finished, by the GPU's clock if there is one."""
        gpu, lists = self._gpu, self._lists
        while self._pieces and gpu.is_past(self._pieces[0].mark, wait):
            piece = self._pieces.pop(0)
            seconds = gpu.seconds(self._mark, piece.mark, piece.seconds)
            wait_s = piece.wait_s + sum(gpu.seconds(*pair) for pair in piece.waits)
            self._mark = piece.mark
            self._seconds += seconds
            self._wait_s += wait_s
            if piece.samples is not None:
                self._samples = (self._samples or 0) + piece.samples
            if piece.evaluated and not self._is_run:
                self._evaluated.append(self._closed)
            self._closed += piece.count
            if not self._is_run:
                lists["seconds"].append(round(seconds, 6))
                lists["wait_s"].append(round(wait_s, 6))
                lists["samples"].append(piece.samples)
                if self._report.order["record_samples"]:
                    lists["digests"].append("+".join(piece.digests))

    def _tell_closed(self, now: float) -> None:
        self._close()
        if self._closed > self._told:
            self._tell(now)

    def _is_measured(self, now: float) -> bool:
        order = self._report.order
        if order["steps"] is None or self._measured:
            return False
        if self._warm_at is None:
            # an idle card has reached its clocks after this time
            is_awake = self._device == "cpu" or now - self._first_at >= order["wake_s"]
            if self._count < order["warm_steps"] or not is_awake:
                return False
            self._warm_at, self._warm_count = now, self._count
        enough = self._count >= self._warm_count + order["steps"]
        past = now - self._warm_at
        awaited = self._sampler is not None and self._sampler.awaits(past)
        return bool(enough and past >= order["seconds"] and not awaited)

    def _tell(self, now: float) -> None:
        device = cuda()
        # at the end the process group no longer exists
        self._ranks = ranks_of_torch() or self._ranks
        rank, world = self._ranks
        self._report.tell(
            "steps",
            first=self._told,
            count=self._closed - self._told,
            evaluated=self._evaluated,
            loader=self._loader,
            total={
                "steps": self._closed,
                "seconds": round(self._seconds, 6),
                "wait_s": round(self._wait_s, 6),
                "evaluate_s": round(self._evaluate_s, 6),
                "samples": self._samples,
            },
            rank=rank,
            world=world,
            device=self._device,
            device_name=None if device is None else device.get_device_name(),
            parameters=self._format,
            autocast=autocast(),
            tf32=tf32(),
            finite=self._finite,
            **peaks(),
            **self._lists,
        )
        self._told, self._told_at = self._closed, now
        self._empty()

    def _tell_what_was_asked(self) -> None:
        if self._sampler is not None:
            self._sampler.tell()
        if self._recorder is not None:
            self._recorder.tell(self._count)

    def finish(self) -> None:
        """Report the last steps, and that the process ends by itself."""
        if not self._report.started:
            return
        if self._process != self._report.process:
            self._forget()
        self._pulse.ends()
        # the GPU of a failed process is not waited for
        is_well = getattr(sys, "last_type", None) is None
        optimizer = self._optimizer() if self._optimizer is not None and is_well else None
        self._finite = None if optimizer is None else are_finite(optimizer)
        if self._count > self._told or self._finite is False:
            self._turn()
            self._close(wait=is_well)
            self._tell(time.perf_counter())
        self._tell_what_was_asked()
        seconds = time.perf_counter() - self._report.began
        self._report.tell("end", steps=self._count, seconds=round(seconds, 6))


def watch_autocast(report: HookReport) -> Callable[[Any], None]:
    """An action for the module of autocast that notes the format of each autocast that is entered."""

    def torch_is_here(module: Any) -> None:
        kind = module.autocast
        enter = kind.__enter__

        @functools.wraps(enter)
        def entered(self: Any) -> Any:
            global _entered
            if getattr(self, "_enabled", True):
                _entered = str(getattr(self, "fast_dtype", "")).replace("torch.", "") or None
            return enter(self)

        kind.__enter__ = entered
        report.undo.append(lambda: setattr(kind, "__enter__", enter))

    return torch_is_here


def autocast() -> str | None:
    """The format of the last autocast that was entered, as torch names it; None if there was none."""
    return _entered


def tf32() -> bool | None:
    """Whether matrix products of fp32 may use TF32; None if torch does not say."""
    torch: Any = sys.modules["torch"]
    try:
        return bool(torch.get_float32_matmul_precision() != "highest")
    except (AttributeError, RuntimeError):
        return None


def are_finite(optimizer: Any) -> bool | None:
    """False if weights of the optimizer are NaN or infinite; waits for the device.

    None if no weight can be checked: all ranks would have to take part for weights that are spread over ranks.
    """
    torch: Any = sys.modules["torch"]
    plain = (torch.nn.Parameter, torch.Tensor)
    weights = [
        weight
        for group in optimizer.param_groups
        for weight in group["params"]
        if type(weight) in plain and weight.is_floating_point() and weight.numel() and weight.device.type != "meta"
    ]
    weights.sort(key=lambda weight: int(weight.numel()))
    try:
        return all(bool(torch.isfinite(weight).all()) for weight in weights[:_MOST_WEIGHTS]) if weights else None
    except (RuntimeError, TypeError):
        # isfinite does not support this layout
        return None
