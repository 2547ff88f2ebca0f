"""What a search is to find, and what it has found so far."""

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

# the largest global batch of a config that leaves it open, in times the reference batch
AUTO_FACTOR = 8
_LEAST_STEPS = 10
# what ends the batches that make sense
CEILING = "the global batch"
AUTO_CEILING = "what global_batch: auto allows (8 times the reference batch, a 50th of the data)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """What a search is to find: its parts, its goal, the batches that make sense, and what ends them (`ceiling`).

    `accumulate_below` is what training learns from at once at least: a smaller micro batch is accumulated.
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
    """Whether only the largest batch is asked for: nothing is chosen for its speed, so none is compared."""
    return parts == {"batch"}


def most_of_use(train: Train, num_samples: int, goal: str) -> int:
    """The largest batch over all ranks that is tried; for its speed none that leaves fewer than ten steps an epoch."""
    if train.global_batch != "auto":
        return min(num_samples, train.global_batch)
    if goal != "throughput":
        return num_samples
    return min(num_samples, max(AUTO_FACTOR * train.reference_batch, num_samples // _LEAST_STEPS))


@dataclass(slots=True, kw_only=True)
class Findings:
    """What is known so far; complete enough for a profile as soon as the default trial is there.

    `variants` are the trials of levers, `tried` what came of each. `reasons` are sentences for fields of `variant` that
    something else decided, `rejected` those for fields whose other value failed. `feed` None leaves the loader as it
    is; `num_loaders` counts the settings that were held against that, `feed_trials` are the trials behind it.
    `asked_for_speed` is False where only the largest batch is asked for. `needed_s` is how long a search should take;
    `nothing_to_gain` why more time would not help; `unsearched` what no time was left for.
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
        """The batch of one rank that was chosen; None where none was."""
        return None if self.choice is None else self.choice.batch

    @property
    def gain(self) -> Gain:
        """What the choice gains over the default, both fed with real data, with its doubt."""
        return gain_of(self.defaults, self.joints, kept_default=self.kept_default)

    @property
    def verdict(self) -> SearchVerdict:
        """What the search for speed may say first; nothing that was not tried is in it."""
        counts = self.num_tried
        tried = ((counts["levers"], "lever"), (counts["batch"], "batch"), (counts["loader"], "loader setting"))
        said = judge(self.gain, tried, self.why_not, self.needed_s)
        if said.kind == "none_faster" and self.unsearched:
            return replace(said, why=self.unsearched, needed_s=self.needed_s)
        return said

    @property
    def num_tried(self) -> dict[PartName, int]:
        """How many settings of each part were held against the default's."""
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
        """In one line how the choice failed next to the default; '' if it ran."""
        failed = next((trial for trial in self.joints if not trial.fits), None)
        if failed is None:
            return ""
        return f"{failed.end.told}: {failed.detail[:120]}" if failed.detail else failed.end.told

    @property
    def speedup(self) -> float | None:
        """The choice's speed over the default's, both with real data; None when not measured."""
        ratio = self.gain.of_choice
        return None if ratio is None else ratio.middle
