"""The entry point of `tune -- COMMAND`: look at a script, find its loader and batch, and write them to a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpudoc import facts
from gpudoc.doctor.card_memory import CardShare, share_of_card
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.model import Machine
from gpudoc.process.interruption import terminating_like_ctrl_c
from gpudoc.profile.merge import Merged, save_found
from gpudoc.profile.model import Profile
from gpudoc.progress import SILENT, Progress
from gpudoc.script.advice import CodeLine, lines, said_not_set
from gpudoc.script.cell import Isolation, what_can_be
from gpudoc.script.command import Command, checked
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.look import ScriptLook, lever_of, look_at
from gpudoc.script.outcome import LEAST_STEPS, LaunchRecord, divergence, refusal, trial_of
from gpudoc.script.record import ScriptContext, make_profile
from gpudoc.script.remember import file_digest, fingerprint, hardware_of, script_name
from gpudoc.script.runner import CommandRunner
from gpudoc.script.stages import run_stages, say_plan
from gpudoc.script.trial import FIRST_BATCH, WARM_STEPS, Launches
from gpudoc.temporary import TemporaryFolder
from gpudoc.tune.conditions import check_writable, free_host_bytes, require_gpus
from gpudoc.tune.document import search_document
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.search.heat import readers_of
from gpudoc.tune.search.journal import Header, Journal, find_journal, open_journal, recorded_limit
from gpudoc.tune.search.repetition import Repetition
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import WAKE_S, TrialRequest
from gpudoc.units import format_bytes

# raised whenever the method of a trial changes, so that older journals are not mixed with newer trials
_METHOD = "script-3"
# share of the budget in which the first step must come
_LOOK_SHARE = 0.6

MayRunInPlace = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResult:
    """The findings, and the profile that is now in the file; `profile` and `stored` are None after a look alone."""

    options: SearchOptions
    command: Command
    findings: ScriptFindings
    launches: int
    seconds: float
    isolation: str
    profile: Profile | None = None
    stored: Merged | None = None
    limit_bytes: int | None = None
    interrupted: bool = False

    @property
    def look(self) -> ScriptLook:
        """The script as it is."""
        return self.findings.look

    @property
    def exit_code(self) -> ExitCode:
        """0, or 130 after Ctrl+C."""
        return ExitCode.INTERRUPTED if self.interrupted else ExitCode.OK

    @property
    def lines(self) -> tuple[CodeLine, ...]:
        """The exact lines to write into the script; they include the batch if it was allowed."""
        batch = self._other_batch if "batch" in self.options.allowed else None
        return lines(self.look, self.findings.feed, batch)

    @property
    def offered(self) -> tuple[CodeLine, ...]:
        """The line for a batch that is offered but was not asked for, since it would change the training."""
        return () if "batch" in self.options.allowed else lines(self.look, None, self._other_batch)

    @property
    def _other_batch(self) -> int | None:
        found = self.findings
        return found.batch if found.lever == "loader" and found.batch != found.look.batch else None

    @property
    def advice(self) -> tuple[str, ...]:
        """Observations that no searched setting covers."""
        return said_not_set(self.findings.look)


def run(
    options: SearchOptions, progress: Progress = SILENT, *, may_run_in_place: MayRunInPlace | None = None
) -> ScriptResult:
    """Search within the budget and write the profile; GpudocError for every problem that the user can solve.

    `may_run_in_place` asks whether trials may run without isolation; without it the answer is no. Ctrl+C and
    SIGTERM write the best result so far, once the first look is over.
    """
    options.check()
    command = checked(options.command)
    deadline = Deadline(budget_s=options.budget_s)
    if not options.only_looks:
        check_writable(options.out)
    found = what_can_be()
    isolated = isolate(options, found, may_run_in_place)
    progress.say(say_plan(options, None))
    progress.say(_how_isolated(options, found, isolated))
    with terminating_like_ctrl_c(), TemporaryFolder("tune") as scratch:
        launches = Launches(
            command=command,
            scratch=scratch,
            isolated=isolated,
            network="network" in options.allowed,
            memory_limit_bytes=options.memory_limit_bytes,
        )
        search = _Search(options, launches, progress, deadline, _how_isolated(options, found, isolated))
        try:
            return search.run()
        finally:
            search.journal.close()


def isolate(options: SearchOptions, found: Isolation, may_run_in_place: MayRunInPlace | None) -> bool:
    """Whether trials run in a cell; GpudocError (exit 2) if they would not and the user did not allow that."""
    if options.in_place:
        return False
    missing = [] if found.files else ["what they write stays"]
    if not found.network and "network" not in options.allowed:
        missing.append("they reach the network")
    if not missing:
        return True
    why = f"trials cannot be isolated here: {' and '.join(missing)} ({'; '.join(found.why_not) or 'not known why'})"
    if may_run_in_place is not None and may_run_in_place(why):
        return found.files
    raise GpudocError(why, hint="--in-place runs them as the command itself would run")


def _how_isolated(options: SearchOptions, found: Isolation, isolated: bool) -> str:
    if not isolated:
        return "trials run in place: what the script writes and sends in its first steps stays"
    network = "the network as it is" if "network" in options.allowed or not found.network else "a loopback network only"
    return f"trials see every file system through a private layer that is discarded afterwards, and {network}"


def _ordinal(look: ScriptLook) -> int:
    _, _, number = look.device.partition(":")
    return int(number) if number.isdecimal() else 0


def gpus_of(look: ScriptLook) -> Sequence[int]:
    """CUDA's numbers of the GPUs on which the script was seen."""
    if not look.on_gpu:
        return ()
    return range(look.ranks) if look.ranks > 1 else [_ordinal(look)]


def _share(look: ScriptLook, machine: Machine) -> CardShare | None:
    """The share of its GPU that the script may use; None if that is unknown, or if the script does not use a GPU."""
    if not look.on_gpu or look.device_bytes is None:
        return None
    return share_of_card(look.device_bytes, _ordinal(look) if look.ranks == 1 else 0, machine)


class _Search:
    def __init__(
        self, options: SearchOptions, launches: Launches, progress: Progress, deadline: Deadline, isolation: str
    ) -> None:
        self._options = options
        self._launches = launches
        self._progress = progress
        self._deadline = deadline
        self._isolation = isolation
        self._name = script_name(launches.command.words)
        self.journal = Journal(None)

    def run(self) -> ScriptResult:
        try:
            told = self._look()
        except KeyboardInterrupt:
            why = f"interrupted while looking at {self._name} unchanged: nothing was measured and nothing was written"
            raise GpudocError(why, exit_code=ExitCode.INTERRUPTED) from None
        look = look_at(told.seen, warm_steps=WARM_STEPS, start_s=told.start_s, wake_s=WAKE_S)
        if look is None or told.num_steps <= LEAST_STEPS:
            raise refusal(told, self._name)
        if told.has_diverged:
            raise divergence(told, self._name)
        lever, why_not = lever_of(look, takes_batch=self._launches.command.takes_batch)
        found = ScriptFindings(look=look, lever=lever, why_no_lever=why_not)
        found.defaults.append(
            trial_of(TrialRequest(kind="look", batches=()), told, warm_steps=WARM_STEPS, wake_s=WAKE_S)
        )
        found.notes += look.asides
        if self._options.only_looks:
            return self._result(found)
        return self._tune(told, found)

    def _look(self) -> LaunchRecord:
        """Run trial 0; if the command does not train without {batch}, with a batch that most scripts accept."""
        command = self._launches.command
        self._deadline.show(self._progress, f"launching {self._name} as it is")
        patience_s = _LOOK_SHARE * self._deadline.left_s
        plain = command.without_batch() if command.takes_batch else command.words
        if plain is not None:
            told = self._launches.look(plain, patience_s=patience_s)
            if not command.takes_batch or told.num_steps > LEAST_STEPS:
                return told
            self._progress.say(f"without {{batch}} the script does not train; looking at it with {FIRST_BATCH}")
        self._launches.needs_batch = True
        return self._launches.look(command.at(FIRST_BATCH), patience_s=_LOOK_SHARE * self._deadline.left_s)

    def _tune(self, told: LaunchRecord, found: ScriptFindings) -> ScriptResult:
        look = found.look
        if look.on_gpu and self._options.memory_limit_bytes is not None:
            raise GpudocError(
                f"--memory-limit: gpudoc cannot limit how much a script uses of {look.device_name or look.device}",
                hint="leave it out, so that the card is the limit; or use --max-batch N",
            )
        machine = facts.collect(quick=True)
        require_gpus(gpus_of(look), machine, self._progress, shared=self._options.shared)
        own = look.training
        self._launches.lever = found.lever
        self._launches.keys = () if own is None else (own.key,)
        self._launches.own_ahead = 0 if own is None else own.num_workers * (own.prefetch_factor or 2)
        share = _share(look, machine)
        journal, limit_bytes = self._open_journal(look, share)
        if not look.on_gpu:
            self._launches.batch_limit_bytes = limit_bytes
        elif share is not None and share.is_enforced:
            self._launches.device_limit_bytes = limit_bytes
            self._launches.device_index = None if look.ranks > 1 else _ordinal(look)
            if limit_bytes is not None:
                self._progress.say(f"memory limit {format_bytes(limit_bytes)}: {share.why}")
        session = Session(
            runner=CommandRunner(
                launches=self._launches,
                command=self._launches.command,
                look=look,
                own=found.defaults[0],
                reference=look.batch or FIRST_BATCH,
                limit_bytes=limit_bytes,
            ),
            journal=journal,
            progress=self._progress,
            budget_s=self._options.budget_s,
            deadline=self._deadline,
            spent_s=self._deadline.spent_s,
            again=Repetition(readers_of(gpus_of(look), machine)),
        )
        self._progress.say(say_plan(self._options, told.seconds))
        interrupted = False
        try:
            run_stages(session, self._options, found)
        except KeyboardInterrupt:
            interrupted = True
        given = self._options.memory_limit_bytes
        hardware = hardware_of(machine, device=look.device, torch=look.torch, limit_bytes=given)
        if look.on_gpu:
            known = {
                "name": look.device_name or hardware.name,
                "memory_bytes": hardware.memory_bytes or look.device_bytes,
            }
            hardware = hardware.model_copy(update=known)
        context = ScriptContext(
            command=self._launches.command,
            hardware=hardware,
            limit_bytes=limit_bytes,
            seconds=self._deadline.spent_s,
            launches=self._launches.count,
            goal=self._options.goal,
        )
        profile = make_profile(context, found, journal.trials)
        return self._result(found, profile, save_found(profile, self._options.out), limit_bytes, interrupted)

    def _open_journal(self, look: ScriptLook, share: CardShare | None) -> tuple[Journal, int | None]:
        options = self._options
        key = {
            "method": _METHOD,
            "command": fingerprint(self._launches.command.words),
            "file": file_digest(self._launches.command.words),
            "torch": look.torch,
            "device": look.device_name or look.device,
            "limit": str(options.memory_limit_bytes),
            "isolated": self._isolation,
            "own": str(look.batch),
        }
        path = find_journal(self._name, key)
        limit = options.memory_limit_bytes or recorded_limit(path, key) or self._limit(look, share)
        journal = self.journal = open_journal(path, Header(key=key, limit_bytes=limit), fresh=options.fresh)
        if journal.replayed:
            self._progress.say(journal.replayed)
        return journal, limit

    def _limit(self, look: ScriptLook, share: CardShare | None) -> int | None:
        """The card's memory, or half of the host's free memory divided by ranks; None if the card is unknown."""
        if look.on_gpu:
            return None if share is None else share.limit_bytes
        limit = free_host_bytes() // 2 // look.ranks
        if "batch" not in self._options.parts:
            return limit
        each = "" if look.ranks == 1 else f" for each of {look.ranks} ranks"
        self._progress.say(f"memory limit: {format_bytes(limit)}{each}, half of what is free (--memory-limit sets it)")
        return limit

    def _result(
        self,
        found: ScriptFindings,
        profile: Profile | None = None,
        stored: Merged | None = None,
        limit_bytes: int | None = None,
        interrupted: bool = False,
    ) -> ScriptResult:
        return ScriptResult(
            options=self._options,
            command=self._launches.command,
            findings=found,
            launches=self._launches.count,
            seconds=self._deadline.spent_s,
            isolation=self._isolation,
            profile=profile,
            stored=stored,
            limit_bytes=limit_bytes,
            interrupted=interrupted,
        )


def document(result: ScriptResult) -> Mapping[str, object]:
    """The result as `gpudoc.tune.v1`: the profile (null after a look alone), and what the look found."""
    look, found = result.look, result.findings
    script = {
        "command": str(result.command),
        "launches": result.launches,
        "seconds": round(result.seconds, 1),
        "isolation": result.isolation,
        "interrupted": result.interrupted,
        "loaders": [
            loader.model_dump(mode="json", exclude={"kind", "at", "applied", "refused", "notes", "script"})
            for loader in look.loaders
        ],
        "training": None if look.training is None else look.training.place,
        "lever": found.lever,
        "ranks": look.ranks,
        "device": look.device,
        "device_name": look.device_name,
        "precision": look.precision,
        "tf32": look.tf32,
        "torch": look.torch,
        "steps": look.steps,
        "step_s": round(look.step_s, 6),
        "step_interval_s": [round(value, 6) for value in look.step_interval_s],
        "wait_share": round(look.wait_share, 4),
        "samples_per_s": None if look.samples_per_s is None else round(look.samples_per_s, 2),
        "peak_bytes": look.peak_bytes,
        "evaluates": look.evaluates,
        "lines": [{"at": line.at, "write": line.write} for line in result.lines],
        "offered": [{"at": line.at, "write": line.write} for line in result.offered],
        "advice": list(result.advice),
        "gain": _gain_document(result),
    }
    return search_document(result.stored, found, script=script)


def _gain_document(result: ScriptResult) -> dict[str, object] | None:
    found = result.findings
    ratio = found.gain.of_choice
    if result.profile is None or ratio is None:
        return None
    launches = max(1, min(len(found.defaults), len(found.joints)))
    return {"ratio": ratio.middle, "low": ratio.low, "high": ratio.high, "launches": launches}
