"""A machine that answers every trial from formulas, for what decides between trials."""

from typing import ClassVar

from gpudoc.tune.model.memory import next_calibration_batch
from gpudoc.tune.trial.messages import End, Point, Trial
from gpudoc.units import MIB

REST = 100 * MIB


class Machine:
    """Needs `fixed` + `per_sample` MiB a sample; checkpointing keeps a quarter of it, bf16 half, and both an eighth.

    A step takes 0.1 s and 1 ms a sample; a third more with checkpointing. A policy keeps half and takes a twentieth
    more. `foreseen` is what a plan answers to the question for a policy.
    """

    foreseen: ClassVar[dict[str, float]] = {}

    def __init__(self, limit_mib, *, per_sample=8, fixed=0, fixed_s=0.1):
        self.limit, self.per_sample, self.fixed, self.fixed_s = limit_mib * MIB, per_sample, fixed, fixed_s
        self.asked, self.said = [], []

    def share(self, policy):
        return {False: 1, True: 0.25}.get(policy, 0.5)

    def peak(self, batch, variant):
        share = self.share(variant.activation_checkpointing) * (0.5 if variant.precision == "bf16" else 1)
        return int(REST + self.fixed * MIB + batch * self.per_sample * share * MIB)

    def point(self, batch, variant):
        seconds = (self.fixed_s + 0.001 * batch) * {False: 1, True: 4 / 3}.get(variant.activation_checkpointing, 1.05)
        return Point(batch=batch, peak_bytes=self.peak(batch, variant), rest_bytes=REST, step_s=(seconds,))

    def run(self, request, where):
        self.asked.append(request)
        variant, points = request.variant, []
        if request.question is not None and request.question.asks in ("policy", "most"):
            return Trial(request=request, end=End.FITS, measured=self.foreseen, seconds=1)
        if request.kind == "plan":
            return Trial(request=request, end=End.FITS, detail="formulas cannot be traced", seconds=1)
        batches = request.batches
        if request.kind == "calibrate":
            while (batch := next_calibration_batch(points, self.limit, batches[0])) is not None:
                if self.peak(batch, variant) > self.limit:
                    return Trial(request=request, end=End.OOM_HOST, failed_batch=batch, points=tuple(points), seconds=1)
                points.append(self.point(batch, variant))
            return Trial(request=request, end=End.FITS, points=tuple(points), seconds=1)
        for batch in batches:
            if where.limit_bytes and self.peak(batch, variant) > where.limit_bytes:
                return Trial(request=request, end=End.OOM_HOST, failed_batch=batch, points=tuple(points), seconds=1)
            points.append(self.point(batch, variant))
        return Trial(request=request, end=End.FITS, points=tuple(points), seconds=1, losses=(3.0, 2.0, 1.0))

    def start(self, request, where):
        return Resting(self.run(request, where))

    def say(self, text):
        self.said.append(text)

    def advance(self, done, total, text):
        pass


class Resting:
    """A trial on the fake machine that ended at once."""

    def __init__(self, trial):
        self.trial = trial

    def collect(self, until_waiting=False):
        return self.trial
