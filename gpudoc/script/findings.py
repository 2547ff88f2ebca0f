"""What is known of a script so far; complete enough for a profile as soon as it was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudoc.profile.model import PartName, VariantTrial
from gpudoc.script.batch import Sized
from gpudoc.script.loader import Fed
from gpudoc.script.look import Lever, Look
from gpudoc.stats import median
from gpudoc.tune.model.gain import Gain, gain_between
from gpudoc.tune.model.scaling import Span
from gpudoc.tune.model.verdict import TOO_SHORT, Verdict, judge
from gpudoc.tune.trial.messages import Feed, Trial, Variant


@dataclass(slots=True, kw_only=True)
class Findings:
    """The look, what each part of the search found, and the launches that compare it with trial 0.

    `timed` are the launches of the search, `needed_s` how long one should take; `nothing_to_gain` says why more time
    would not help.
    """

    look: Look
    lever: Lever = "none"
    why_no_lever: str = ""
    defaults: list[Trial] = field(default_factory=list)
    tried: list[VariantTrial] = field(default_factory=list)
    tried_variant: Variant = field(default_factory=Variant)
    fed: Fed | None = None
    sized: Sized | None = None
    joints: list[Trial] = field(default_factory=list)
    timed: list[Trial] = field(default_factory=list)
    unchanged: bool = False
    needed_s: float | None = None
    kept_default: str = ""
    notes: list[str] = field(default_factory=list)
    nothing_to_gain: str = ""

    @property
    def variant(self) -> Variant:
        """What the script is to be started with besides its loader and its batch."""
        return Variant() if self.kept_default else self.tried_variant

    @property
    def feed(self) -> Feed | None:
        """The loader settings to apply; None leaves the script's own."""
        return None if self.fed is None or self.kept_default else self.fed.feed

    @property
    def batch(self) -> int | None:
        """The batch to offer, in the lever's own unit; None leaves the script's own."""
        return None if self.sized is None or self.sized.choice is None else self.sized.choice.batch

    @property
    def gain(self) -> Gain | None:
        """The found settings against trial 0; None where nothing was held against it."""
        if self.joints:
            return gain_between(_speeds(self.defaults), _speeds(self.joints), kept_default=self.unchanged)
        alone = gain_between(_speeds(self.defaults), None, kept_default=True)
        return alone if self.unchanged else None

    @property
    def verdict(self) -> Verdict:
        """What the search may say first; nothing of what was not tried is in it."""
        counts = self.num_tried
        tried = ((counts["levers"], "lever"), (counts["batch"], "batch"), (counts["loader"], "loader setting"))
        return judge(self.gain, tried, self._why_not, self.needed_s)

    @property
    def num_tried(self) -> dict[PartName, int]:
        """How many settings of each part were held against the script's own."""
        own = self.look.training
        ran = [trial for trial in self.fed.choice.trials if trial.runs] if self.fed and self.fed.choice else []
        settings = {one.setting for one in ran if one.setting.num_workers != (own.num_workers if own else 0)}
        batches = {trial.request.batches[0] for trial in self.timed if trial.request.kind == "speed" and trial.fits}
        if self.sized is not None and self.sized.largest is not None:
            batches.add(self.sized.largest.batch)
        return {"levers": len(self.tried), "batch": len(batches - {self.look.batch}), "loader": len(settings)}

    @property
    def _why_not(self) -> str:
        failed = next((trial.end.told for trial in self.joints if not trial.fits), None)
        if failed is not None:
            return f"the found settings failed in the end: {failed}"
        if self.batch not in (None, self.look.batch):
            return "another batch is another training, which is only offered (--allow batch compares it)"
        return self.nothing_to_gain or TOO_SHORT


def _speeds(trials: Sequence[Trial]) -> Span | None:
    """The speed of launches of the same settings, and the slowest and the fastest of them; None without any."""
    known = [speed for trial in trials if (speed := speed_of(trial))]
    return Span(median(known), min(known), max(known)) if known else None


def speed_of(trial: Trial) -> float | None:
    """Samples per second of all ranks, or steps per second where samples are not known; None when nothing ran."""
    if not trial.fits or not trial.measured.get("mean_step_s"):
        return None
    return trial.measured.get("samples_per_s") or 1 / trial.measured["mean_step_s"]


def is_own(feed: Feed, look: Look) -> bool:
    """Whether the settings are those that the script has by itself."""
    loader = look.training
    if loader is None or loader.num_workers != feed.num_workers:
        return False
    if feed.pin_memory != loader.pin_memory and look.on_gpu:
        return False
    if feed.num_workers == 0:
        return True
    return (
        loader.prefetch_factor or 2
    ) == feed.prefetch_factor and loader.persistent_workers == feed.persistent_workers
