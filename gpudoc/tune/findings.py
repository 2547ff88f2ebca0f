"""What a search is to find, and what it has found so far."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from gpudoc.profile.model import VariantTrial
from gpudoc.tune.model.gain import Gain, gain_of
from gpudoc.tune.search.choose import BatchChoice, speedup
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.search.variants import Abilities
from gpudoc.tune.trial.messages import Feed, Point, Trial, Variant

# what ends the batches that make sense
CEILING = "the global batch"
AUTO_CEILING = "what global_batch: auto allows (8 times the reference batch, a 50th of the data)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a search is to find: its parts, its goal, the batches that make sense, and what ends them (`ceiling`)."""

    parts: frozenset[str]
    goal: str
    reference: int
    cap: int
    useful: int
    base: Variant
    abilities: Abilities
    ceiling: str = CEILING

    @property
    def is_for_size_alone(self) -> bool:
        """Whether only the largest batch is asked for."""
        return is_for_size_alone(self.goal, self.parts)


def is_for_size_alone(goal: str, parts: Set[str]) -> bool:
    """Whether only the largest batch is asked for: nothing is chosen for its speed, so none is compared."""
    return goal == "largest" and parts == {"batch"}


@dataclass(slots=True)
class Findings:
    """What is known so far; complete enough for a profile as soon as the default trial is there.

    `variants` are the trials of levers, `tried` what came of each. `reasons` are sentences for fields of `variant` that
    something else decided, `rejected` those for fields whose other value failed. `asked_for_speed` is False where only
    the largest batch is asked for.
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
    feed: Feed = field(default_factory=Feed)
    feed_reasons: tuple[str, ...] = ()
    feed_trials: tuple[Trial, ...] = ()
    joints: list[Trial] = field(default_factory=list)
    kept_default: bool = False
    asked_for_speed: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def gain(self) -> Gain:
        """What the choice gains over the default, both fed with real data, with its doubt."""
        return gain_of(self.defaults, self.joints, kept_default=self.kept_default)

    @property
    def speedup(self) -> float | None:
        """Samples per second of the choice over the default's, both with real data; None when not measured."""
        return 1.0 if self.kept_default else speedup(self.defaults, self.joints)
