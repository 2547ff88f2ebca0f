"""The meaning of the time split, and the advice about it. Pure functions of figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudoc.doctor.model import Finding
from gpudoc.train.document import AdviceRow
from gpudoc.train.meter.meters import Split
from gpudoc.train.ranks.pace import Slow
from gpudoc.train.settings import TrainSettings

# a phase below this share, or below this time, is not worth a message
_WORTH_SAYING = 0.10
_WORTH_SAYING_S = 5.0
# the advice proposes a value that is this many times rarer or larger
_FEWER = 4


@dataclass(frozen=True, slots=True)
class RunAdvice:
    """A sentence, a command if one helps, and the largest speed-up of the run; the smallest is 1."""

    say: str
    run: str = ""
    at_most: float | None = None

    def document(self) -> AdviceRow:
        """The advice as plain data."""
        found: AdviceRow = {"say": self.say, "run": self.run}
        if self.at_most is not None:
            found["gain"] = {"at_least": 1.0, "at_most": round(self.at_most, 3)}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSituation:
    """The facts on which the advice depends, besides the split."""

    settings: TrainSettings
    model: str
    device_type: str
    num_cpus: int
    profile_kind: str
    # the most loader workers that the data set can use; None: any number
    most_workers: int | None = None
    # threads that waited for CPUs on which other processes computed
    spinning: Finding | None = None
    # the function that torch.compile recompiled most often, and why; empty if there is none
    recompiled: str = ""


def verdict(split: Split) -> str:
    """One sentence about the largest shares of the time."""
    if split.wall_s <= 0:
        return "no step was trained"
    names = {
        "data_wait": "waiting for data",
        "transfer": "copying to the device",
        "compute": "computing",
        "communicate": "waiting for other ranks",
        "host": "waiting for Python",
        "compile": "compiling",
        "checkpoint": "checkpoints",
        "evaluate": "evaluation",
        "other": "everything else",
    }
    ranked = sorted(split.seconds, key=lambda phase: -split.seconds[phase])
    said = [f"{split.share(phase):.0%} {names[phase]}" for phase in ranked if split.share(phase) >= 0.01]
    return "time went into " + ", ".join(said[:4])


def advise(split: Split, situation: RunSituation) -> list[RunAdvice]:
    """Advice to make this run faster, the most valuable first; empty if nothing stands out."""
    found = [
        *_about_waiting(split, situation),
        *_about_python(split, situation),
        *_about_pauses(split, situation.settings),
    ]
    if situation.spinning is not None and situation.device_type == "cpu":
        found.append((split.share("compute"), RunAdvice(situation.spinning.title, situation.spinning.fix[0].run)))
    ordered = [advice for _, advice in sorted(found, key=lambda pair: -pair[0])]
    if not ordered and situation.profile_kind in ("off", "preset"):
        say = "these settings are not tuned for this machine"
        ordered.append(RunAdvice(say, f"gpudoc tune --model {situation.model}"))
    return ordered


def _about_waiting(split: Split, situation: RunSituation) -> Iterator[tuple[float, RunAdvice]]:
    """Advice about the waits of the step (samples, copies, other ranks), each with its share of the time."""
    settings = situation.settings
    data, transfer, communicate = (split.share(phase) for phase in ("data_wait", "transfer", "communicate"))
    if data >= _WORTH_SAYING:
        yield data, _about_data(split, situation)
    if transfer >= _WORTH_SAYING and not settings.pin_memory:
        say = f"copying to the device took {transfer:.0%}: copies from pinned memory run during the computation"
        yield transfer, _gaining(say, "--set pin_memory=true", transfer)
    elif transfer >= _WORTH_SAYING:
        say = f"steps waited {transfer:.0%} for copies to the device: bytes would be smaller than floats"
        yield transfer, _gaining(say, "", transfer)
    if communicate >= 0.25:
        larger = _FEWER * settings.global_batch
        say = (
            f"waiting for other ranks took {communicate:.0%}: a larger global batch exchanges gradients less often, "
            "but it also changes what each step learns from"
        )
        yield communicate, _gaining(say, f"--set global_batch={larger}", communicate * (1 - 1 / _FEWER))


def _about_python(split: Split, situation: RunSituation) -> Iterator[tuple[float, RunAdvice]]:
    """Advice about an idle GPU, because Python was late with its work or torch.compile was at work."""
    settings = situation.settings
    host, compiling = split.share("host"), split.share("compile")
    if compiling >= _WORTH_SAYING and situation.recompiled:
        say = (
            f"torch.compile worked for {compiling:.0%} of the time, again and again: {situation.recompiled}; inputs "
            "of a single shape are compiled only once"
        )
        yield compiling, _gaining(say, "", compiling)
    if host < _WORTH_SAYING:
        return
    say = f"the GPU waited {host:.0%} for Python: "
    if settings.log_every == 1:
        say += "every step waits for logging"
        yield host, _gaining(say, "--set log_every=10", host)
    elif settings.accumulation > 1:
        say += "a larger micro batch does the same work in fewer kernels"
        yield host, _gaining(say, f"--batch-size {2 * settings.micro_batch}", host / 2)
    elif not settings.compile:
        yield host, _gaining(say + "compiled code queues fewer kernels", "--set compile=true", host)
    else:
        yield host, _gaining(say + "a trace shows what Python did in that time", "--trace 5", host)


def _about_pauses(split: Split, settings: TrainSettings) -> Iterator[tuple[float, RunAdvice]]:
    """Advice about checkpoints and evaluations, which can be rarer."""
    checkpoint, evaluate = split.share("checkpoint"), split.share("evaluate")
    if checkpoint >= _WORTH_SAYING and split.seconds["checkpoint"] >= _WORTH_SAYING_S:
        run = f"--set checkpoint_every={_FEWER * max(1, settings.checkpoint_every)}"
        say = f"steps waited {checkpoint:.0%} for checkpoints"
        yield checkpoint, _gaining(say, run, checkpoint * (1 - 1 / _FEWER))
    # a single evaluation at the end of a short run does not count as often
    often = 0 < 2 * settings.eval_every <= settings.steps
    if often and evaluate >= 0.25 and split.seconds["evaluate"] >= _WORTH_SAYING_S:
        run = f"--set eval_every={_FEWER * settings.eval_every}"
        yield evaluate, _gaining(f"evaluation took {evaluate:.0%}", run, evaluate * (1 - 1 / _FEWER))


def _gaining(say: str, run: str, saved: float) -> RunAdvice:
    """Advice that saves at most this share of the time."""
    at_most = 1 / max(0.01, 1 - saved)
    return RunAdvice(f"{say}, worth at most about {at_most:.1f}x", run, at_most)


def about_slow(slow: Slow | None) -> list[RunAdvice]:
    """Advice about a straggler, which comes first: each step takes as long as on that rank."""
    if slow is None:
        return []
    return [
        RunAdvice(f"{slow.say()}: without it a step takes at best {1 / slow.factor:.0%} of the time", "gpudoc doctor")
    ]


def _about_data(split: Split, situation: RunSituation) -> RunAdvice:
    share = split.share("data_wait")
    workers = situation.settings.num_workers
    # at best all of the waiting disappears; on a CPU the workers take cores from the step
    worth = min(1 / (1 - share), 1 + share * situation.num_cpus) if share < 1 else float(situation.num_cpus)
    if situation.most_workers is not None:
        return _about_stream(share, workers, situation.most_workers)
    more = min(max(1, 2 * workers), situation.num_cpus)
    if more <= workers:
        say = (
            f"waited {share:.0%} for data with {workers} workers on {situation.num_cpus} CPUs, so the data set itself "
            "is the limit; decode less, store smaller samples, or use more CPUs"
        )
        return RunAdvice(say)
    say = f"waited {share:.0%} for data: num_workers {workers} -> {more}, worth at most about {worth:.1f}x"
    return RunAdvice(say, f"gpudoc tune --model {situation.model} --only loader", worth)


def _about_stream(share: float, workers: int, most: int) -> RunAdvice:
    if workers < most:
        return RunAdvice(f"waited {share:.0%} for data: a loader worker would read ahead", f"--num-workers {most}")
    return RunAdvice(
        f"waited {share:.0%} for data: one process reads an iterable data set in order; with __len__ and __getitem__ "
        "any number of loader workers could read it"
    )
