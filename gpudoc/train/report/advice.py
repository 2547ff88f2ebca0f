"""What the time split means, and the one thing to do about it. Pure functions of figures."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.train.ranks.pace import Slow
from gpudoc.train.settings import Settings
from gpudoc.train.step.meters import Split

# below this share, and below this time, a phase is not worth a word
_WORTH_SAYING = 0.10
_WORTH_SAYING_S = 5.0


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence, and a command where one helps."""

    say: str
    run: str = ""

    def document(self) -> dict[str, str]:
        """The advice as plain data."""
        return {"say": self.say, "run": self.run}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the advice depends on besides the split."""

    settings: Settings
    model: str
    device_type: str
    num_cpus: int
    profile_kind: str
    # the most loader workers that the data set can use; None: any number
    most_workers: int | None = None


def verdict(split: Split) -> str:
    """Where the time went, in one sentence with the largest shares."""
    if split.wall_s <= 0:
        return "no step was trained"
    names = {
        "data_wait": "waiting for data",
        "transfer": "copying to the device",
        "compute": "computing",
        "communicate": "communicating",
        "checkpoint": "checkpoints",
        "evaluate": "evaluation",
        "other": "everything else",
    }
    ranked = sorted(split.seconds, key=lambda phase: -split.seconds[phase])
    said = [f"{split.share(phase):.0%} {names[phase]}" for phase in ranked if split.share(phase) >= 0.01]
    return "time went into " + ", ".join(said[:4])


def advise(split: Split, situation: Situation) -> list[Advice]:
    """What would make this run faster, the most valuable first; empty when nothing stands out."""
    found: list[tuple[float, Advice]] = []
    if split.share("data_wait") >= _WORTH_SAYING:
        found.append((split.share("data_wait"), _about_data(split, situation)))
    if split.share("transfer") >= _WORTH_SAYING and not situation.settings.pin_memory:
        say = f"copying to the device took {split.share('transfer'):.0%}: pinned memory copies beside the computation"
        found.append((split.share("transfer"), Advice(say, "--set pin_memory=true")))
    if split.share("communicate") >= 0.25:
        say = f"communication took {split.share('communicate'):.0%}: more micro batches per step need fewer exchanges"
        found.append((split.share("communicate"), Advice(say, "--set accumulation=4")))
    if split.share("checkpoint") >= _WORTH_SAYING and split.seconds["checkpoint"] >= _WORTH_SAYING_S:
        longer = max(1, situation.settings.checkpoint_every) * 4
        say = f"steps waited {split.share('checkpoint'):.0%} for checkpoints"
        found.append((split.share("checkpoint"), Advice(say, f"--set checkpoint_every={longer}")))
    # the one evaluation at the end of a short run is nobody's habit
    often = 0 < 2 * situation.settings.eval_every <= situation.settings.steps
    if often and split.share("evaluate") >= 0.25 and split.seconds["evaluate"] >= _WORTH_SAYING_S:
        say = f"evaluation took {split.share('evaluate'):.0%}"
        run = f"--set eval_every={4 * situation.settings.eval_every}"
        found.append((split.share("evaluate"), Advice(say, run)))
    ordered = [advice for _, advice in sorted(found, key=lambda pair: -pair[0])]
    if not ordered and situation.profile_kind in ("off", "preset"):
        say = "these settings are not tuned for this machine"
        ordered.append(Advice(say, f"gpudoc tune --model {situation.model}"))
    return ordered


def about_slow(slow: Slow | None) -> list[Advice]:
    """What a rank that the others wait for is worth, above all else: each step takes as long as that one's."""
    if slow is None:
        return []
    return [Advice(f"{slow.say()}: without it a step takes at best {1 / slow.factor:.0%} of the time", "gpudoc doctor")]


def _about_data(split: Split, situation: Situation) -> Advice:
    share = split.share("data_wait")
    workers = situation.settings.num_workers
    # at best all of the waiting goes away; on a CPU the workers take cores from the step
    worth = min(1 / (1 - share), 1 + share * situation.num_cpus) if share < 1 else float(situation.num_cpus)
    if situation.most_workers is not None:
        return _about_stream(share, workers, situation.most_workers)
    more = min(max(1, 2 * workers), situation.num_cpus)
    if more <= workers:
        say = (
            f"waited {share:.0%} for data with {workers} workers on {situation.num_cpus} CPUs: "
            "the data set itself is the limit; decode less, store smaller samples, or use more CPUs"
        )
        return Advice(say)
    say = f"waited {share:.0%} for data: num_workers {workers} -> {more}, worth at most about {worth:.1f}x"
    return Advice(say, f"gpudoc tune --model {situation.model} --only loader")


def _about_stream(share: float, workers: int, most: int) -> Advice:
    if workers < most:
        return Advice(f"waited {share:.0%} for data: a loader worker would read ahead", f"--num-workers {most}")
    return Advice(
        f"waited {share:.0%} for data: an iterable data set is read in order, by one process; with __len__ and "
        "__getitem__ any number of loader workers could read it"
    )
