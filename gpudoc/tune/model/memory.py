"""Memory as a function of the batch: safe steps upward, a prediction of the largest batch, growth over steps; pure.

Every tensor of a training step has a size a + c·b with a, c >= 0, and the peak is the largest sum over all moments: a
convex, piecewise linear function of the batch b. So peak(k·b) - rest <= k · (peak(b) - rest): a batch within that bound
can be run without risk, and a line through two measured peaks never overestimates the memory beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.tune.trial.messages import Point
from gpudoc.units import MIB

FIRST_BATCHES = (1, 2, 4)
MAX_JUMP = 16
NOT_AFFINE = 1.15
# the true maximum itself varies by about 1 MiB from process to process: differences below twice that mean nothing
_TOLERANCE_BYTES = 2 * MIB
_TOLERANCE_SHARE = 0.01
_NOISE_BYTES = 4 * MIB
_LEAK_BYTES = 2 * MIB
# more than the search leaves between the largest batch and the one that fails
_ROOMY_BYTES, _ROOMY_SAMPLES = 8 * MIB, 4
# less than any tensor that the heap gives back to the system
_STILL_BYTES = MIB // 4
# a heap that varies instead of growing: every reported leak rises more in five steps, and in nine runs of 150 equal
# steps the peak rose by 1.9 MiB at most after the fifth (three models, torch 2.13, 2026-11-23); a trial holds 2
_WANDERS_BYTES, _WANDER_ROOM_BYTES = MIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """Peak memory near the largest batch: a line of slope `bytes_per_sample` through (`batch`, `peak_bytes`)."""

    batch: int
    peak_bytes: int
    bytes_per_sample: float

    @property
    def fixed_bytes(self) -> float:
        """The line's value at batch zero, in bytes."""
        return self.peak_bytes - self.bytes_per_sample * self.batch

    def at(self, batch: int) -> float:
        """The predicted peak at `batch`, in bytes."""
        return self.peak_bytes + self.bytes_per_sample * (batch - self.batch)

    def largest(self, limit_bytes: int) -> int:
        """The largest batch whose predicted peak is within the limit; at least 0."""
        if self.bytes_per_sample <= 0:
            return self.batch
        return max(0, self.batch + int((limit_bytes - self.peak_bytes) // self.bytes_per_sample))

    def through(self, batch: int, peak_bytes: int) -> MemoryLine:
        """The line of the same slope through a newly measured peak."""
        return MemoryLine(batch=batch, peak_bytes=peak_bytes, bytes_per_sample=self.bytes_per_sample)

    def gap(self, batch: int) -> int:
        """The distance of two batches around `batch` at which to stop: 2 MiB, at most 1 %, at least one sample."""
        if self.bytes_per_sample <= 0:
            return 1
        by_bytes = int(_TOLERANCE_BYTES // self.bytes_per_sample)
        return max(1, min(by_bytes, int(batch * _TOLERANCE_SHARE)))


def fit_memory(points: Sequence[Point]) -> MemoryLine | None:
    """The line through the two largest batches with different peaks; None while no peak depends on the batch."""
    known = sorted({p.batch: p.peak_bytes for p in points if p.peak_bytes is not None}.items())
    if len(known) < 2:
        return None
    (last_batch, last_peak) = known[-1]
    for batch, peak in reversed(known[:-1]):
        # close batches give a poor slope: memory that the heap keeps between steps moves a peak by up to 10 MiB
        far_enough = last_batch >= 2 * batch
        if peak < last_peak and far_enough:
            slope = (last_peak - peak) / (last_batch - batch)
            return MemoryLine(batch=last_batch, peak_bytes=last_peak, bytes_per_sample=slope)
    return None


def residual_bytes(points: Sequence[Point], line: MemoryLine) -> float:
    """The largest distance between a measured peak and the line, in bytes, over the upper half of the batches."""
    upper = [p for p in points if p.peak_bytes is not None and p.batch * 2 >= line.batch]
    return max((abs(p.peak_bytes - line.at(p.batch)) for p in upper if p.peak_bytes is not None), default=0.0)


def next_calibration_batch(measured: Sequence[Point], limit_bytes: int, cap: int) -> int | None:
    """The next larger batch, which cannot run out of memory if memory is affine; None if the limit is near.

    First 1, 2 and 4; then the convex bound from the last point, by at most a factor of 4 until three points show how
    memory grows; then by 16, or by 2 if the growth is not affine.
    """
    points = _at_lowest_rest(measured)
    done = {point.batch for point in points}
    for batch in FIRST_BATCHES:
        if batch not in done:
            if batch > cap or (points and safe_batch(points[-1], limit_bytes) < batch):
                return None
            return batch
    last = points[-1]
    exponent = growth_exponent(points)
    factor = 4 if exponent is None else 2 if exponent > NOT_AFFINE else MAX_JUMP
    candidate = min(cap, safe_batch(last, limit_bytes), factor * last.batch)
    line = fit_memory(points)
    if line is not None and line.largest(limit_bytes) > 0:
        # the last few percent are for the probes: a point there costs a step and adds nothing
        candidate = min(candidate, max(1, int(0.97 * line.largest(limit_bytes))))
    return candidate if candidate >= 1.2 * last.batch else None


def _at_lowest_rest(points: Sequence[Point]) -> list[Point]:
    """The points with the least memory at rest: memory that a heap keeps for reuse belongs to the moving part."""
    known = [point.rest_bytes for point in points if point.rest_bytes is not None]
    return [p.model_copy(update={"rest_bytes": min(known)}) for p in points] if known else list(points)


def safe_batch(point: Point, limit_bytes: int) -> int:
    """The largest batch that must fit because memory is convex, given the measured `point`."""
    if point.peak_bytes is None or point.rest_bytes is None:
        return 2 * point.batch
    moving = point.peak_bytes - point.rest_bytes
    room = limit_bytes - point.rest_bytes - _NOISE_BYTES
    if moving <= 0:
        return MAX_JUMP * point.batch if room > 0 else point.batch
    return int(point.batch * max(0.0, room) / moving)


def growth_exponent(points: Sequence[Point]) -> float | None:
    """How the moving part of memory grows with the batch: 1 is affine, 2 quadratic as with in-batch contrastive losses.

    It is computed from the three largest batches without any constant part; None if they do not show it.
    """
    known = [p for p in sorted(points, key=lambda p: p.batch) if p.peak_bytes is not None]
    if len(known) < 3:
        return None
    (b0, p0), (b1, p1), (b2, p2) = [(p.batch, p.peak_bytes or 0) for p in known[-3:]]
    lower, upper = (p1 - p0) / (b1 - b0), (p2 - p1) / (b2 - b1)
    if p1 - p0 < _NOISE_BYTES or p2 - p1 < _NOISE_BYTES:
        return None
    if upper <= lower:
        return 1.0
    middle = math.log(((b2 + b1) / 2) / ((b1 + b0) / 2))
    return 1.0 + math.log(upper / lower) / middle


def is_roomy(first: Point, before: int, limit_bytes: int) -> bool:
    """Whether the second step will leave room for several more samples, if the first began with `before` bytes at rest.

    The second has the same peak on top of the optimizer's state, which the first has left.
    """
    peak, rest = first.peak_bytes or limit_bytes, first.rest_bytes or limit_bytes
    room = limit_bytes - peak - max(0, rest - before)
    return room > max(_ROOMY_BYTES, _ROOMY_SAMPLES * (peak - before) / first.batch)


def is_still(series: Sequence[int], count: int, room_bytes: int = 0) -> bool:
    """Whether memory at rest did not change over the first `count` steps, from its size after each step.

    A heap that moved in these steps may move again: one that was still from step 5 to 12 grew by 3 MiB at step 13. So
    it needs room between peak and limit, in addition to the memory that the trial holds.
    """
    if len(series) != count or not count:
        return False
    rise, risen = max(series) - series[0], series[-1] - series[0]
    wanders = rise <= _WANDERS_BYTES or risen < _STILL_BYTES
    return (wanders and room_bytes >= _WANDER_ROOM_BYTES) or max(series) - min(series) < _STILL_BYTES


def growth_per_step(series: Sequence[int]) -> float:
    """Bytes by which memory grows with every step, from its size after each step; 0 if it grows no more than noise."""
    if len(series) < 8:
        return 0.0
    half, quarter = len(series) // 2, 3 * len(series) // 4
    if min(series[quarter:]) - max(series[1:half]) < _LEAK_BYTES:
        return 0.0
    return (series[-1] - series[half]) / (len(series) - 1 - half)
