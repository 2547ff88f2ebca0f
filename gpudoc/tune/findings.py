"""The goals of a search, and its findings so far."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace

from gpudoc.profile.model import Loader, PartName, VariantTrial
from gpudoc.tune.model.gain import Gain, gain_of
from gpudoc.tune.model.verdict import TOO_SHORT, SearchVerdict, judge
from gpudoc.tune.search.choose import BatchChoice
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.search.variants import Abilities
from gpudoc.tune.trial.messages import Point, Trial, Variant
from gpudoc.workload.config import Train

# the largest global batch if the config leaves it open, as a multiple of the reference batch
AUTO_FACTOR = 8
_LEAST_STEPS = 10
# names of the upper limit for batches that make sense
CEILING = "the global batch"
AUTO_CEILING = "what global_batch: auto allows (8 times the reference batch, a 50th of the data)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """The task of a search: its parts, its goal, the batches that make sense, and what limits them (`ceiling`).

    `accumulate_below` is the least number of samples per optimizer step: a smaller micro batch is accumulated.
    """

    parts: frozenset[str]
    goal: str
    reference: int
    cap: int
    useful: int
    base: Variant
    abilities: Abilities
    ceiling: str = CEILING
    accumulate_below: int = 1

    @property
    def is_for_size_alone(self) -> bool:
        """Whether only the largest batch is asked for."""
        return is_for_size_alone(self.parts)


def is_for_size_alone(parts: Set[str]) -> bool:
    """Whether only the largest batch is asked for: speed decides nothing then, so no speeds are compared."""
    return parts == {"batch"}


def most_of_use(train: Train, num_samples: int, goal: str) -> int:
    """The largest batch over all ranks that is tried; for throughput, an epoch keeps at least ten steps."""
    if train.global_batch != "auto":
        return min(num_samples, train.global_batch)
    if goal != "throughput":
        return num_samples
    return min(num_samples, max(AUTO_FACTOR * train.reference_batch, num_samples // _LEAST_STEPS))


@dataclass(slots=True, kw_only=True)
class Findings:
    """The findings so far; complete enough for a profile as soon as the default trial is there.

    `variants` are the trials of levers, `tried` their results. `reasons` explain fields of `variant` that something
    other than a trial decided; `rejected` explains fields whose other value failed. `feed` None leaves the loader as it
    is; `num_loaders` counts the settings that were compared with that, `feed_trials` are the trials behind it.
    `asked_for_speed` is False if only the largest batch is asked for. `needed_s` is how long a search should take;
    `nothing_to_gain` says why more time would not help; `unsearched` says for which part no time was left.
    """

    defaults: list[Trial] = field(default_factory=list)
    variants: list[Trial] = field(default_factory=list)
    tried: list[VariantTrial] = field(default_factory=list)
    variant: Variant = field(default_factory=Variant)
    reasons: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    largest: Largest | None = None
    speeds: tuple[Point, ...] = ()
    choice: BatchChoice | None = None
    feed: Loader | None = None
    feed_reasons: tuple[str, ...] = ()
    feed_trials: tuple[Trial, ...] = ()
    num_loaders: int = 0
    joints: list[Trial] = field(default_factory=list)
    kept_default: bool = False
    asked_for_speed: bool = True
    needed_s: float | None = None
    notes: list[str] = field(default_factory=list)
    nothing_to_gain: str = ""
    unsearched: str = ""

    @property
    def batch(self) -> int | None:
        """The chosen batch of one rank; None if no batch was chosen."""
        return None if self.choice is None else self.choice.batch

    @property
    def gain(self) -> Gain:
        """The gain of the choice over the default, both fed with real data, with its uncertainty."""
        return gain_of(self.defaults, self.joints, kept_default=self.kept_default)

    @property
    def verdict(self) -> SearchVerdict:
        """The first statement about the search for speed; it mentions only parts that were tried."""
        counts = self.num_tried
        tried = ((counts["levers"], "lever"), (counts["batch"], "batch"), (counts["loader"], "loader setting"))
        said = judge(self.gain, tried, self.why_not, self.needed_s)
        if said.kind == "none_faster" and self.unsearched:
            return replace(said, why=self.unsearched, needed_s=self.needed_s)
        return said

    @property
    def num_tried(self) -> dict[PartName, int]:
        """How many settings of each part were compared with the default's."""
        asked = [batch for trial in self.defaults[:1] for batch in trial.request.batches]
        default = next(iter([*asked, *(point.batch for trial in self.defaults[:1] for point in trial.points)]), None)
        batches = {point.batch for point in self.speeds} | ({self.choice.batch} if self.choice else set())
        return {"levers": len(self.tried), "batch": len(batches - {default}), "loader": self.num_loaders}

    @property
    def why_not(self) -> str:
        """Why nothing was compared with the default."""
        if self.failed_with_data:
            return f"with your data these settings failed: {self.failed_with_data}"
        return self.nothing_to_gain or TOO_SHORT

    @property
    def failed_with_data(self) -> str:
        """One line on how the choice failed when it ran next to the default; '' if it ran."""
        failed = next((trial for trial in self.joints if not trial.fits), None)
        if failed is None:
            return ""
        return f"{failed.end.told}: {failed.detail[:120]}" if failed.detail else failed.end.told

    @property
    def speedup(self) -> float | None:
        """The choice's speed over the default's, both with real data; None if not measured."""
        ratio = self.gain.of_choice
        return None if ratio is None else ratio.middle
