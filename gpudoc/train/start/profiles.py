"""Chooses the profile from which a run starts, and saves the result of a rescue for the next run."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import gpudoc
from gpudoc.errors import GpudocError
from gpudoc.policy import Policy
from gpudoc.profile import store
from gpudoc.profile.match import explain, interrupted, match, ranks_hint
from gpudoc.profile.model import Hardware, Levers, Loader, Made, Profile, ProfileEvidence, Rescue, WorkloadKey
from gpudoc.profile.model import Settings as ProfileSettings
from gpudoc.shell import quote_path
from gpudoc.units import format_seconds

if TYPE_CHECKING:
    from gpudoc.train.settings import TrainSettings

Kind = Literal["off", "tuned", "preset", "named"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The profile to start from, if any, and the sentences about it."""

    kind: Kind
    profile: Profile | None = None
    sentence: str
    passed_over: tuple[str, ...] = ()


def choose(asked: str, here: Hardware, workload: WorkloadKey) -> Chosen:
    """The profile for --profile (auto, off or a file); GpudocError if a named one is for something else."""
    if asked == "off":
        return Chosen(kind="off", sentence="no profile: PyTorch's own settings")
    if asked == "auto":
        found = match(here, workload)
        if found is None:
            return Chosen(kind="off", sentence="no profile fits; gpudoc tune creates one")
        return Chosen(kind=found.kind, profile=found.profile, sentence=found.sentence, passed_over=found.passed_over)
    path = Path(asked)
    profile = store.load(path)
    found_differences = explain(profile, here, workload)
    hard = [str(difference) for difference in found_differences if difference.hard]
    if hard:
        source = workload.config if workload.config in ("quickstart", "images") else f"{workload.config}.yaml"
        raise GpudocError(
            f"{path}: made for something else: {'; '.join(hard)}{ranks_hint(profile, found_differences)}",
            hint=(
                f"gpudoc tune --model {quote_path(source)} creates one for this machine; --profile auto uses one that "
                "fits"
            ),
        )
    said = [*(str(difference) for difference in found_differences), interrupted(profile)]
    soft = "; ".join(sentence for sentence in said if sentence)
    return Chosen(kind="named", profile=profile, sentence=f"profile {path.name}" + (f"; {soft}" if soft else ""))


def lasting(profile: Profile | None, settings: TrainSettings, world: int, *, on_gpu: bool) -> str:
    """The duration of the whole run at the speed that tune measured with these settings; '' if it measured none."""
    if profile is None:
        return ""
    evidence, tuned = profile.evidence, profile.settings
    same = (settings.micro_batch, settings.num_workers) == (tuned.micro_batch, tuned.loader.num_workers)
    if evidence.samples_per_s is None or not same:
        return ""
    pace = evidence.samples_per_s / profile.hardware.count
    seconds = settings.steps * settings.global_batch / (pace * world)
    hours = f", {world * seconds / 3600:.2f} GPU-hours" if on_gpu else ""
    return f"all its steps take about {format_seconds(seconds)}{hours}, at the speed that tune measured"


def of_run(settings: TrainSettings, base: Profile | None, here: Hardware, workload: WorkloadKey) -> Profile:
    """The profile that describes a run as it is now: the content of profile.yaml in the run directory."""
    found = ProfileSettings(
        **{name: getattr(settings, name) for name in Levers.model_fields},
        micro_batch=settings.micro_batch,
        accumulation=settings.accumulation,
        loader=Loader(
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=settings.pin_memory,
            persistent_workers=settings.persistent_workers,
        ),
    )
    tuned = base is not None and not base.is_preset
    return Profile(
        made=base.made if base is not None else None,
        hardware=here,
        workload=workload.model_copy(update={"global_batch": settings.global_batch}),
        settings=found,
        evidence=base.evidence if base is not None and tuned else ProfileEvidence(),
        why=base.why if base is not None and tuned else ("the settings that a run used, without tuning",),
    )


@dataclass(kw_only=True)
class RunProfile:
    """The profile of a run on disk, which a rescue changes; `teaches`: the one in the user's store, too.

    A profile that the user named by its file is never written.
    """

    profile: Profile
    path: Path
    teaches: bool

    def remember(self, rescue: Rescue, accumulation: int, recomputes: Policy) -> None:
        """Write the smaller micro batch, so that the next run starts with it."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        before = self.profile
        changed = {
            "micro_batch": rescue.to_batch,
            "accumulation": accumulation,
            "activation_checkpointing": recomputes,
        }
        settings = before.settings.model_copy(update=changed)
        evidence = before.evidence.model_copy(update={"rescues": (*before.evidence.rescues, rescue)})
        sentence = (
            f"memory ran out in training at step {rescue.step} with micro batch {rescue.from_batch}, "
            f"so the next run starts with {rescue.to_batch}"
        )
        made = before.made or Made(at=now, gpudoc=gpudoc.__version__, seconds=0.0, trials=0)
        self.profile = before.model_copy(
            update={"settings": settings, "evidence": evidence, "why": (*before.why, sentence), "made": made}
        )
        store.save(self.profile, self.path)
        if self.teaches:
            store.save(self.profile, store.folder_to_write() / store.file_name(self.profile))
