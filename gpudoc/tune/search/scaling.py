"""Measure how training scales: the numbers of ranks, their settings, one trial after the other into the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.host import cpus_usable
from gpudoc.profile.match import match
from gpudoc.profile.model import Hardware, Loader, Profile, WorkloadKey
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.model.scaling import Scaling, ScalingPoint, Setup, assess_point, conclude
from gpudoc.tune.search.session import WorkloadSession
from gpudoc.tune.trial.messages import Trial, TrialRequest, Variant
from gpudoc.tune.trial.wire import Inspection
from gpudoc.units import format_count
from gpudoc.workload.config import LoadedConfig, Train

_MOST_ON_CPU = 8
_SHARE = 0.6
_LEAST_S, _MOST_S = 1.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings:
    """The settings of every rank, and one sentence about their source."""

    batch: int
    variant: Variant = field(default_factory=Variant)
    feed: Loader = field(default_factory=Loader)
    told: str = ""
    tuned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingResult:
    """The answer of `--only scaling`, which tunes nothing and so writes no profile."""

    scaling: Scaling
    config: LoadedConfig
    num_trials: int
    seconds: float
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """0; 1 if no two numbers of ranks could be compared; 130 after Ctrl+C."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.OK if self.scaling.is_answered else ExitCode.BAD_ANSWER


def most_ranks(asked: str | None, chosen: int, *, on_gpu: bool, one_gpu: bool, num_gpus: int) -> int:
    """The most ranks to measure; GpudocError (exit 2) if one rank could not be compared with anything.

    `chosen` is the number from --gpus, every GPU without it; on a CPU the default is a rank for every CPU, at most 8.
    """
    most = chosen
    if not on_gpu and asked in (None, "auto"):
        most = min(_MOST_ON_CPU, max(1, int(cpus_usable())))
    if most > 1:
        return most
    if asked not in (None, "auto"):
        raise GpudocError(f"--gpus {asked} and --only scaling contradict each other: a single rank cannot scale")
    if not on_gpu:
        raise GpudocError(
            "one CPU, so there is nothing to scale to", hint="--gpus 2 measures two processes on it anyway"
        )
    why = "--device names one GPU" if one_gpu and num_gpus > 1 else "this machine has one GPU that torch can use"
    hint = "--device cuda" if one_gpu and num_gpus > 1 else "--device cpu measures several processes on the CPU"
    raise GpudocError(f"{why}, so there is nothing to scale to", hint=hint)


def counts_up_to(most: int) -> tuple[int, ...]:
    """The powers of two up to `most`, and `most` itself."""
    powers = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
    return tuple(powers if powers[-1] == most else [*powers, most])


def hardware_of(told: Inspection, limit_bytes: int | None) -> Hardware:
    """The machine as training names it under this limit, if any."""
    return told.hardware if limit_bytes is None else told.hardware.model_copy(update={"memory_bytes": limit_bytes})


def tuned_settings(
    hardware: Hardware, workload: WorkloadKey, counts: Sequence[int], train: Train, cap: int
) -> ScalingSettings:
    """The settings of a profile that fits here, preferably for more ranks; otherwise the config's own."""
    for count in reversed(counts):
        found = match(hardware.model_copy(update={"count": count}), workload)
        if found is not None and found.kind == "tuned":
            return _of_profile(found.profile, found.path.name, cap)
    return ScalingSettings(
        batch=min(train.reference_batch, cap),
        variant=Variant(
            precision="fp32" if train.precision == "auto" else train.precision,
            activation_checkpointing=train.policy or False,
        ),
        told="no profile fits: the reference batch of the config, no loader workers (gpudoc tune makes a profile)",
    )


def _of_profile(profile: Profile, name: str, cap: int) -> ScalingSettings:
    found = profile.settings
    batch = min(found.micro_batch, cap)
    variant = {name: getattr(found, name) for name in Variant.model_fields}
    return ScalingSettings(
        batch=batch,
        variant=Variant.model_validate(variant),
        feed=found.loader,
        told=f"as in the profile {name}" + (f", but for the batch of {batch}" if batch < found.micro_batch else ""),
        tuned=True,
    )


class ScalingStage:
    """Runs the trials and keeps their results; `result` can be called at any time, also after Ctrl+C."""

    def __init__(
        self,
        session: WorkloadSession,
        settings: ScalingSettings,
        counts: Sequence[int],
        told: Inspection,
        *,
        budget_s: float,
    ) -> None:
        self._session = session
        self._budget_s = budget_s
        self._settings = settings
        self._counts = tuple(counts)
        self._on_gpu = session.runner.device != "cpu"
        self._num_threads = told.num_threads
        self._gradient_bytes = told.parameter_bytes
        self._num_samples = told.num_samples
        self._points: list[ScalingPoint] = []
        self._notes: list[str] = []
        self._alone: dict[int, Trial] = {}

    def run(self) -> None:
        """Measure one number of ranks after the other, until the budget ends."""
        say = self._session.progress.say
        # the measured settings were chosen before: if they fail, no others are tried
        self._session.base = self._settings.variant
        say(f"scaling: micro batch {self._settings.batch} on each of {', '.join(map(str, self._counts))} ranks")
        if self._settings.told:
            say(f"  {self._settings.told}")
        for count in self._counts:
            # a single point is not an answer: the second is begun as long as any time is left
            if len(self._points) > 1 and self._session.left_s < self._seconds:
                left = [n for n in self._counts if n >= count]
                self._notes.append(f"{', '.join(map(str, left))} ranks were not measured: the budget is used up")
                return
            self._measure(count)

    def result(self, model: str) -> Scaling:
        """The result so far."""
        setup = Setup(
            model=model,
            on_gpu=self._on_gpu,
            batch=self._settings.batch,
            num_samples=self._num_samples,
            tuned=self._settings.tuned,
            pins=self._settings.feed.pin_memory,
        )
        verdict, command = conclude(self._points, setup)
        noise = noise_of([trial for trial in self._session.journal.trials if trial.request.kind == "scaling"])
        doubts = () if noise is None else (f"! {noise}; run the same command again to measure those again",)
        return Scaling(
            device="cuda" if self._on_gpu else "cpu",
            batch=self._settings.batch,
            settings_from=self._settings.told,
            gradient_bytes=self._gradient_bytes,
            points=tuple(self._points),
            verdict=verdict,
            command=command,
            notes=(*doubts, *self._notes),
        )

    @property
    def has_points(self) -> bool:
        """Whether anything was measured."""
        return bool(self._points)

    @property
    def _seconds(self) -> float:
        """Seconds of measuring per trial, from the whole time for it, so that a resumed search requests the same."""
        num_trials = 2 * len(self._counts) - 1
        return min(_MOST_S, max(_LEAST_S, _SHARE * self._budget_s / num_trials))

    def _measure(self, count: int) -> None:
        threads = max(1, self._num_threads // count)
        alone = self._run_alone(threads if not self._on_gpu else self._num_threads)
        trial = alone
        if count > 1:
            each = f" with {format_count(threads, 'thread')} each" if not self._on_gpu else ""
            trial = self._session.run(self._request(count), f"{count} ranks{each}")
        first = self._points[0] if self._points else None
        point = assess_point(trial, alone, threads, first)
        self._points.append(point)
        if not self._on_gpu and count > cpus_usable():
            self._notes.append(f"{count} ranks share {cpus_usable():g} CPUs")

    def _run_alone(self, threads: int) -> Trial:
        """The trial of one rank with `threads` threads, to compare several ranks with."""
        if threads not in self._alone:
            fewer = None if threads == self._num_threads else threads
            why = "one rank alone" + (f" with {format_count(threads, 'thread')}" if not self._on_gpu else "")
            self._alone[threads] = self._session.run(self._request(1, fewer), why)
        return self._alone[threads]

    def _request(self, ranks: int, threads: int | None = None) -> TrialRequest:
        settings = self._settings
        return TrialRequest(
            kind="scaling",
            batches=(settings.batch,),
            variant=settings.variant,
            feed=settings.feed,
            ranks=ranks,
            seconds_per_batch=round(self._seconds, 3),
            threads=threads,
        )


def limited_for(session: WorkloadSession, most: int, free_bytes: int, asked: int | None) -> WorkloadSession:
    """The session with room for `most` ranks on one host; a memory limit of the user applies to each rank unchanged."""
    if session.runner.device != "cpu" or asked is not None:
        return session
    session.runner.limit_to(free_bytes // 2 // most)
    return session
