"""What is known of a script so far; complete enough for a profile as soon as it was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudoc.profile.model import VariantTrial
from gpudoc.script.batch import Lever, Sized
from gpudoc.script.loader import Fed
from gpudoc.script.look import Look
from gpudoc.stats import median
from gpudoc.tune.trial.messages import Feed, Trial, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How many times trial 0's speed the found settings reach, and how far apart the launches of both were."""

    ratio: float
    low: float
    high: float
    launches: int

    @property
    def text(self) -> str:
        """The gain with its doubt: '1.82 times (1.79 to 1.86 over 2 launches each)'."""
        each = f"over {self.launches} launches each" if self.launches > 1 else "one launch each"
        return f"{self.ratio:.2f} times ({self.low:.2f} to {self.high:.2f}, {each})"


@dataclass(slots=True, kw_only=True)
class Findings:
    """The look, what each part of the search found, and the launches that compare it with trial 0."""

    look: Look
    lever: Lever = "none"
    why_no_lever: str = ""
    defaults: list[Trial] = field(default_factory=list)
    tried: list[VariantTrial] = field(default_factory=list)
    tried_variant: Variant = field(default_factory=Variant)
    fed: Fed | None = None
    sized: Sized | None = None
    joints: list[Trial] = field(default_factory=list)
    unchanged: bool = False
    kept_default: str = ""
    notes: list[str] = field(default_factory=list)

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
        """The found settings against trial 0; None where the closing comparison was not made."""
        return Gain(ratio=1.0, low=1.0, high=1.0, launches=1) if self.unchanged else gain(self.defaults, self.joints)


def gain(defaults: Sequence[Trial], joints: Sequence[Trial]) -> Gain | None:
    """The ratio of the medians, and the ratios of the launches that are furthest apart; None without both."""
    before = [speed for trial in defaults if (speed := speed_of(trial))]
    after = [speed for trial in joints if (speed := speed_of(trial))]
    if not before or not after:
        return None
    return Gain(
        ratio=median(after) / median(before),
        low=min(after) / max(before),
        high=max(after) / min(before),
        launches=min(len(before), len(after)),
    )


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
