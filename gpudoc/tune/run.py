"""The entry point of `tune`: find the settings for one workload on one device and write them to a profile."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpudoc import facts
from gpudoc.doctor.card_memory import share_of_card
from gpudoc.doctor.causes.holders import describe_holder, holders_of
from gpudoc.doctor.device import Choice, choose
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Machine
from gpudoc.process.compiler import can_compile
from gpudoc.process.interruption import terminating_like_ctrl_c
from gpudoc.profile.merge import Merged, save_found
from gpudoc.profile.model import Loader, Profile
from gpudoc.progress import SILENT, Progress
from gpudoc.train.data.order import auto_global_batch
from gpudoc.train.start.launch import choose_ranks
from gpudoc.tune.conditions import check_system, check_writable, free_host_bytes, require_gpus
from gpudoc.tune.document import SCHEMA, search_document
from gpudoc.tune.findings import (
    AUTO_CEILING,
    AUTO_FACTOR,
    CEILING,
    Findings,
    SearchPlan,
    is_for_size_alone,
    most_of_use,
)
from gpudoc.tune.model.scaling import Scaling
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.record import Context, make_profile
from gpudoc.tune.search.feeder import Feeder
from gpudoc.tune.search.heat import readers_of
from gpudoc.tune.search.journal import Header, Journal, find_journal, open_journal, recorded_limit
from gpudoc.tune.search.repetition import Repetition
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.scaling import (
    ScalingResult,
    ScalingSettings,
    ScalingStage,
    counts_up_to,
    hardware_of,
    limited_for,
    most_ranks,
    tuned_settings,
)
from gpudoc.tune.search.session import Session, WorkloadSession
from gpudoc.tune.search.stages import run_stages
from gpudoc.tune.search.variants import abilities_of
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.launcher import InspectionError, Launcher, Where
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import Inspection
from gpudoc.units import format_bytes
from gpudoc.workload.config import LoadedConfig, load_config

# raised whenever trials change, so that older journals are not mixed with newer trials
_METHOD = "7"
_AUTO_SHARE = 50
# to end the fork servers and to write the profile
_CLOSING_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The findings of this search, the profile that is in the file now, and the trials that led to it."""

    profile: Profile
    stored: Merged
    findings: Findings
    journal: Journal
    context: Context
    scaling: Scaling | None = None
    interrupted: bool = False

    @property
    def path(self) -> Path:
        """The file of the profile."""
        return self.stored.path

    @property
    def exit_code(self) -> ExitCode:
        """0, or 130 after Ctrl+C."""
        return ExitCode.INTERRUPTED if self.interrupted else ExitCode.OK


def run(
    options: SearchOptions, progress: Progress = SILENT, *, since: float | None = None
) -> TuneResult | ScalingResult:
    """Search within the budget and write the profile; raises GpudocError for every problem that the user can fix.

    The budget runs from `since` (`time.monotonic()`), or from now if it is None. Ctrl+C and SIGTERM write the best
    settings so far, if there are any. `--only scaling` measures and writes no profile.
    """
    deadline = Deadline(budget_s=options.budget_s, since=time.monotonic() if since is None else since)
    options.check()
    loaded = load_config(options.model)
    if not options.is_scaling_only:
        check_writable(options.out)
    machine = facts.collect(quick=True, python=Path(sys.executable))
    choice = choose(options.device, machine).required()
    check_system(on_gpu=choice.device == "cuda")
    progress.say(f"tuning {loaded.name} on {choice.why}, budget {options.budget_s:.0f} s")
    if choice.device == "cuda":
        require_gpus([choice.index], machine, progress, shared=options.shared)
    expected = [Variant()]
    if options.goal == "largest" and choice.device == "cpu":
        # the search for the largest batch uses another allocator than the timing of the default (stages.py)
        expected.append(Variant(allocator="exact"))
    if is_for_size_alone(options.parts):
        expected = expected[-1:]
    search = _Search(options, loaded, choice, machine, progress, deadline)
    if choice.device == "cpu":
        # without GPUs, a mistake shows before anything is imported
        search.choose_ranks(0)
    with terminating_like_ctrl_c(), Launcher(options.model, expected, deadline) as launcher:
        try:
            return search.run(launcher)
        finally:
            search.journal.close()


@dataclass(slots=True)
class _Search:
    _options: SearchOptions
    _loaded: LoadedConfig
    _choice: Choice
    _machine: Machine
    _progress: Progress
    _deadline: Deadline
    _ranks: int = 1
    _most: int = 1
    journal: Journal = field(default_factory=lambda: Journal(None))

    @property
    def _on_gpu(self) -> bool:
        return self._choice.device == "cuda"

    def run(self, launcher: Launcher) -> TuneResult | ScalingResult:
        self._deadline.show(self._progress, "importing PyTorch and your workload")
        anywhere = Where(device=self._choice.name, limit_bytes=None, deadline=self._deadline)
        told = self._inspect(launcher, anywhere, 1)
        if launcher.no_fork:
            self._progress.say(f"trials are not forked, and each imports everything again: {launcher.no_fork}")
        if self._on_gpu:
            self.choose_ranks(told.card.count if told.card is not None else 0)
        self._progress.say(self._options.cost(max(self._ranks, self._most), on_gpu=self._on_gpu))
        if self._on_gpu and self._ranks > 1:
            require_gpus(self._ordinals(), self._machine, self._progress, shared=self._options.shared)
            # the free memory may differ from card to card
            told = self._inspect(launcher, anywhere, self._ranks)
        start_s = self._deadline.spent_s
        journal, limit_bytes = self._open_journal(told, start_s)
        where = Where(device=self._choice.name, limit_bytes=limit_bytes, cap=self._cap(told))
        session = Session(
            runner=WorkloadRunner(launcher=launcher, where=where, ranks=self._ranks, start_s=journal.start_s),
            journal=journal,
            progress=self._progress,
            budget_s=self._options.tuning_s,
            deadline=replace(self._deadline, budget_s=self._options.tuning_s),
            spent_s=journal.start_s + _CLOSING_S,
            again=Repetition(readers_of(self._ordinals(), self._machine) if self._on_gpu else ()),
        )
        if self._options.is_scaling_only:
            return self._scale_only(told, session)
        plan = self._plan(told)
        found = Findings()
        if self._ranks > 1:
            each = f"every trial ran {self._ranks} processes; batch, memory and speed are those of one of them"
            found.notes.append(f"{self._ranks} ranks: {each}")
            self._progress.say(f"{self._ranks} ranks: every trial runs {self._ranks} processes that share gradients")
        interrupted = False
        scaling: ScalingStage | None = None
        try:
            run_stages(session, plan, found, Feeder(self._loaded))
            if "scaling" in self._options.parts and found.choice is not None:
                settings = ScalingSettings(
                    batch=found.choice.batch,
                    variant=found.variant,
                    feed=found.feed or Loader(),
                    told="as tuned",
                    tuned=True,
                )
                session.go_on_until(self._deadline)
                scaling = self._scaling_stage(told, session, settings)
                scaling.run()
        except KeyboardInterrupt:
            if not found.defaults:
                raise
            interrupted = True
        finally:
            session.release()
        answer = None if scaling is None or not scaling.has_points else scaling.result(self._options.model)
        if answer is not None:
            found.notes.append(answer.verdict)
        return replace(self._write(told, session, found, interrupted), scaling=answer)

    def _inspect(self, launcher: Launcher, where: Where, ranks: int) -> Inspection:
        try:
            return launcher.inspect(where, ranks)
        except InspectionError as problem:
            if not self._on_gpu or not problem.trial.end.is_memory:
                raise
            name = self._choice.name if ranks == 1 else f"one of {ranks} GPUs"
            raise GpudocError(
                f"{name} has too little free memory to begin{self._others()}: {problem.message}",
                hint="stop your processes there, or use another GPU: --device cuda:N",
                exit_code=ExitCode.BAD_ANSWER,
            ) from None

    def choose_ranks(self, num_gpus: int) -> None:
        """Set the ranks of every trial and the most that are measured; GpudocError if the machine cannot run them."""
        asked = self._options.gpus
        names_one = ":" in self._options.device
        device = self._options.device if self._on_gpu and names_one else self._choice.device
        self._ranks = choose_ranks(asked, device=device, num_gpus=num_gpus)
        if "scaling" in self._options.parts:
            self._most = most_ranks(
                asked, self._ranks, on_gpu=self._on_gpu, one_gpu=names_one and self._on_gpu, num_gpus=num_gpus
            )
        if self._options.is_scaling_only:
            self._ranks = self._most

    def _scaling_stage(self, told: Inspection, session: WorkloadSession, settings: ScalingSettings) -> ScalingStage:
        limited = limited_for(session, self._most, free_host_bytes(), self._options.memory_limit_bytes)
        return ScalingStage(limited, settings, counts_up_to(self._most), told, budget_s=self._options.scaling_s)

    def _scale_only(self, told: Inspection, session: WorkloadSession) -> ScalingResult:
        hardware = hardware_of(told, self._options.memory_limit_bytes)
        counts, train = counts_up_to(self._most), self._loaded.config.train
        settings = tuned_settings(hardware, told.workload, counts, train, session.runner.where.cap)
        stage = self._scaling_stage(told, session, settings)
        interrupted = False
        try:
            stage.run()
        except KeyboardInterrupt:
            if not stage.has_points:
                raise
            interrupted = True
        return ScalingResult(
            scaling=stage.result(self._options.model),
            config=self._loaded,
            num_trials=sum(trial.request.kind == "scaling" for trial in session.journal.trials),
            seconds=self._deadline.spent_s,
            interrupted=interrupted,
        )

    def _open_journal(self, told: Inspection, start_s: float) -> tuple[Journal, int]:
        key = {
            "method": _METHOD,
            "config": self._loaded.config.digest(),
            "model": told.workload.model,
            "data": told.workload.data,
            "device": self._choice.name,
            "machine": told.hardware.title,
            "torch": told.torch,
            "cpus": str(told.num_threads),
            "limit": str(self._options.memory_limit_bytes),
            "budget": str(self._options.budget_s),
            "ranks": str(self._ranks),
        }
        path = find_journal(self._loaded.name, key)
        recorded = None if self._options.fresh else recorded_limit(path, key)
        limit_bytes = self._limit(told, recorded)
        header = Header(key=key, limit_bytes=limit_bytes, start_s=round(start_s, 3))
        journal = self.journal = open_journal(path, header, fresh=self._options.fresh)
        if journal.replayed:
            self._progress.say(journal.replayed)
        return journal, limit_bytes

    def _limit(self, told: Inspection, recorded: int | None) -> int:
        """The memory limit of a trial, which it prints: the user's, the journal's, or one from the free memory."""
        asked = self._options.memory_limit_bytes
        card = told.card
        free = free_host_bytes() if card is None else card.free_bytes
        if asked is not None:
            chosen = asked if card is None else min(asked, free)
            self._progress.say(f"memory limit {format_bytes(chosen)}{self._each()}, as asked")
            self._check_baseline(told, chosen)
            return chosen
        if recorded is not None and recorded * (self._ranks if card is None else 1) <= free:
            self._progress.say(f"memory limit {format_bytes(recorded)}{self._each()}, as in the run before")
            return recorded
        if card is not None:
            share = share_of_card(free, self._choice.index, self._machine)
            self._progress.say(
                f"memory limit {format_bytes(share.limit_bytes)}: {share.why} ({card.name}){self._others()}"
            )
            return share.limit_bytes
        half = free // 2 // self._ranks
        shared = "" if self._ranks == 1 else f", shared by {self._ranks} ranks"
        self._progress.say(
            f"memory limit {format_bytes(half)}: half of the {format_bytes(free)} that are free{shared} "
            "(--memory-limit changes it)"
        )
        return half

    def _ordinals(self) -> Sequence[int]:
        return range(self._ranks) if self._ranks > 1 else [self._choice.index]

    def _each(self) -> str:
        return "" if self._ranks == 1 else f" for each of {self._ranks} ranks"

    def _check_baseline(self, told: Inspection, chosen: int) -> None:
        baseline = told.baseline_bytes
        if self._choice.device == "cpu" and chosen <= baseline:
            raise GpudocError(
                f"--memory-limit {format_bytes(chosen)} is less than Python, torch and the data need before the "
                f"first step: {format_bytes(baseline)}",
                hint=f"--memory-limit {2 * baseline // 2**20}MiB or more",
                exit_code=ExitCode.BAD_ANSWER,
            )

    def _others(self) -> str:
        """Other processes on the card, named, because their memory is not free."""
        gpu = gpu_at(self._choice.index, self._machine)
        named = [] if gpu is None else [describe_holder(process) for process in holders_of(gpu)]
        return f"; also there: {', '.join(named)}" if named else ""

    def _cap(self, told: Inspection) -> int:
        """The largest useful batch of one rank, limited by the data set, `--max-batch` and the global batch."""
        most = -(-most_of_use(self._loaded.config.train, told.num_samples, self._options.goal) // self._ranks)
        return min(most, self._options.max_batch or most)

    def _plan(self, told: Inspection) -> SearchPlan:
        train = self._loaded.config.train
        cap = self._cap(told)
        count = told.num_samples
        reference = train.reference_batch
        if train.global_batch == "auto":
            useful = max(reference, min(AUTO_FACTOR * reference, count // _AUTO_SHARE))
            whole = auto_global_batch(
                reference=reference, micro_batch=reference, world=self._ranks, num_samples=max(1, count)
            )
        else:
            useful = whole = train.global_batch
        # of one rank; the default to beat is the batch that train takes without a profile
        useful, reference = -(-useful // self._ranks), min(reference, -(-whole // self._ranks))
        precision = "fp32" if train.precision == "auto" else train.precision
        return SearchPlan(
            parts=self._options.parts,
            goal=self._options.goal,
            reference=max(1, min(reference, cap)),
            cap=cap,
            useful=max(1, min(useful, cap)),
            ceiling=AUTO_CEILING if train.global_batch == "auto" else CEILING,
            accumulate_below=train.reference_batch if train.global_batch == "auto" else train.global_batch,
            base=Variant(precision=precision, activation_checkpointing=train.policy or False),
            abilities=abilities_of(
                told,
                train,
                device=self._choice.name,
                budget_s=self._options.budget_s,
                ranks=self._ranks,
                can_compile=can_compile(self._choice.device, None if told.card is None else told.card.capability),
            ),
        )

    def _write(self, told: Inspection, session: WorkloadSession, found: Findings, interrupted: bool) -> TuneResult:
        context = Context(
            config=self._loaded,
            hardware=told.hardware,
            workload=told.workload,
            device=self._choice.device,
            limit_bytes=session.runner.limit_bytes or 1,
            user_limit_bytes=self._options.memory_limit_bytes,
            seconds=self._deadline.spent_s,
            ranks=session.runner.ranks,
            source=self._options.model,
            asked=self._options.asked,
            interrupted=interrupted,
            goal=self._options.goal,
        )
        tuned = [trial for trial in session.journal.trials if trial.request.kind != "scaling"]
        profile = make_profile(context, found, tuned)
        return TuneResult(
            profile=profile,
            stored=save_found(profile, self._options.out),
            findings=found,
            journal=session.journal,
            context=context,
            interrupted=interrupted,
        )


def document(result: TuneResult | ScalingResult) -> Mapping[str, object]:
    """The result as `gpudoc.tune.v1`; `scaling` only if it was measured, `profile` null if nothing was tuned."""
    if isinstance(result, ScalingResult):
        return {"schema": SCHEMA, "profile": None, "scaling": result.scaling.document()}
    scaling = {} if result.scaling is None else {"scaling": result.scaling.document()}
    return search_document(result.stored, result.findings, gain=result.findings.gain.document(), **scaling)
