"""`gpudoc fix`: look at a script, try one change at a time, and offer the changes that alternating launches prove.

Only proved changes are written, and only if the user asked for that.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fix.evidence import files_of, read_evidence
from gpudoc.fix.first_step import FirstStep, describe_death, judge_first_step, room_beyond
from gpudoc.fix.launches import GIVES_BACK, FixLaunches, RecordedRun, RoundingOrder
from gpudoc.fix.lengths import RecordLength, boundaries_of, length_of, why_no_core, workers_needed
from gpudoc.fix.model import Candidate, Claim, Refusal, RunEvidence, name_of
from gpudoc.fix.options import FixOptions
from gpudoc.fix.proof import FixProof, equal_to_itself, judge, judge_alive
from gpudoc.fix.propose import propose_in
from gpudoc.fix.result import FixResult, check_writable, write_changes
from gpudoc.fix.rewrites import OF_MEMORY, REWRITES
from gpudoc.fix.rewrites.loader import ONE_WORKER, WORKERS
from gpudoc.fix.rewrites.precision import ID as FLOAT64
from gpudoc.fix.rounding import PLAIN, SINGLE, judge_by_controls, may_be_rounding
from gpudoc.fix.source import UnfixableError, parse_source, read_source
from gpudoc.process.interruption import terminating_like_ctrl_c
from gpudoc.progress import SILENT, Progress
from gpudoc.script.cell import what_can_be
from gpudoc.script.command import checked
from gpudoc.script.look import ScriptLook, look_at
from gpudoc.script.outcome import LEAST_STEPS, LaunchRecord, refusal
from gpudoc.script.remember import script_file, script_name
from gpudoc.script.trial import WARM_STEPS, Launches
from gpudoc.shell import quote_path
from gpudoc.temporary import TemporaryFolder
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.units import format_seconds
from gpudoc.writing import write_whole

_ROUNDS = 3
# the order in which rewrites are tried, across all files
_PLACES = {rewrite.id: place for place, rewrite in enumerate(REWRITES)}
_Runs = list[RecordedRun]
_LOOK_S, _LOOK_SHARE, _EVALUATION_SHARE, _PATIENCE = 20.0, 0.35, 0.25, 3.0


def run(options: FixOptions, progress: Progress = SILENT) -> FixResult:
    """Look, try, prove, and write if the user asked for it; GpudocError for every problem that the user can solve."""
    allowed, limit = options.claims, options.memory_limit_bytes
    if not options.command:
        raise GpudocError("nothing to fix: put a command after --", hint="gpudoc fix -- python train.py")
    deadline, command = Deadline(budget_s=options.budget_s), checked(options.command)
    _check_place(command.words)
    check_writable(script_file(command.words) if options.write else None)
    found = what_can_be()
    if not found.is_whole and not (found.files and options.network):
        why = "; ".join(found.why_not) or "reason unknown"
        raise GpudocError(
            f"a changed script cannot be run in isolation here: {why}",
            hint="gpudoc fix needs Linux with user namespaces; gpudoc tune -- COMMAND works with --in-place",
        )
    progress.say("each launch gets a private layer over every file system, which is discarded afterwards")
    with terminating_like_ctrl_c(), TemporaryFolder("fix") as scratch:
        launches = Launches(
            command=command, scratch=scratch, isolated=True, network=options.network, memory_limit_bytes=limit
        )
        fixer = _Fixer(options, FixLaunches(launches=launches), progress, deadline, allowed)
        result = fixer.run()
    if options.patch is not None and result.diff:
        write_whole(options.patch, result.diff.decode("utf-8"), hint="--patch fix.patch")
    return write_changes(result) if options.write and not result.interrupted else result


def _check_place(words: tuple[str, ...]) -> None:
    """Raises GpudocError if the script lies outside of this folder: the diff only names files below it."""
    script, here = script_file(words), Path.cwd().resolve()
    if script is None or not script.is_file() or script.resolve().is_relative_to(here):
        return
    python = words[0] if "/" not in words[0] else str(Path(words[0]).absolute())
    there = script.resolve()
    again = shlex.join([python, *(there.name if Path(word) == script else word for word in words[1:])])
    raise GpudocError(
        f"{script} lies outside of this folder, and a change is only made below it",
        hint=f"cd {quote_path(there.parent)} && gpudoc fix -- {again}",
    )


def _load() -> float:
    # fix compares launches on Linux; Windows has no load average
    if sys.platform == "win32":
        return 0.0
    return os.getloadavg()[0]


@dataclass(slots=True)
class _Fixer:
    options: FixOptions
    fix: FixLaunches
    progress: Progress
    deadline: Deadline
    allowed: frozenset[Claim]
    accepted: list[FixProof] = field(default_factory=list)
    lost: list[FixProof] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    before: dict[Path, str] = field(default_factory=dict)
    untried: int = 0
    unequal: str = ""
    tried: set[tuple[str, str]] = field(default_factory=set)
    base: RecordedRun | None = None
    first: list[RecordedRun] = field(default_factory=list)
    seen: tuple[ScriptLook, RunEvidence] | None = None
    length: RecordLength = field(default_factory=RecordLength)
    whole: FixProof | None = None
    load: float = field(default_factory=_load)
    """How many processes computed when fix began, by the system's mean over a minute."""

    def run(self) -> FixResult:
        """Look and try, round after round; after Ctrl+C the result holds the changes proved until then."""
        began = time.monotonic()
        interrupted = False
        try:
            self._try_all()
            if len(self.accepted) > 1:
                self.whole = self._prove_whole()
        except KeyboardInterrupt:
            if not self.accepted:
                why = "interrupted: nothing was proved and nothing was written"
                raise GpudocError(why, exit_code=ExitCode.INTERRUPTED) from None
            interrupted = True
            self.notes.append("interrupted: changes that were not tried are not offered")
        if len(self.accepted) > 1 and self.whole is None:
            self._keep_the_first()
        assert self.seen is not None
        after = {path: self.fix.files[path].decode("utf-8") for path in self.before}
        return FixResult(
            options=self.options, look=self.seen[0], evidence=self.seen[1], accepted=tuple(self.accepted),
            refused=tuple(dict.fromkeys(self.refused)), lost=tuple(self.lost), before=self.before, after=after,
            whole=self.whole, launches=self.fix.launches.count, seconds=time.monotonic() - began,
            notes=tuple(self.notes), untried=self.untried, unequal=self.unequal, interrupted=interrupted,
        )  # fmt: skip

    def _try_all(self) -> None:
        for number in range(_ROUNDS):
            told = self._look(number)
            look = look_at(told.seen, warm_steps=WARM_STEPS, start_s=told.start_s)
            died = told.error is not None and told.error.shortage is not None
            early = look is None or told.num_steps <= LEAST_STEPS
            if early and died and self.seen is None and self._try_first_step(told):
                return
            if look is None or (early and not died):
                if self.seen is None:
                    problem = refusal(told, script_name(self.options.command))
                    # exit code 1 means that a change is proved
                    code = max(problem.exit_code, ExitCode.NOT_DONE)
                    raise GpudocError(problem.message, hint=problem.hint, exit_code=code)
                return
            if look.ranks > 1:
                raise GpudocError(
                    f"fix works on scripts with one process, but this one starts {look.ranks} ranks",
                    hint="start it without torchrun, with one rank",
                )
            evidence = read_evidence(told, look, workers_needed(look))
            if self.seen is None:
                self.seen = look, evidence
                self.length = length_of(told, look, evidence.evaluated_after, self.deadline.left_s)
                if evidence.awaits_evaluation:
                    self.notes.append("the script evaluates, but the look ended before it reached an evaluation")
            if not self._improve(evidence, look, died=died) or self.accepted[-1].lives:
                return

    def _try_first_step(self, told: LaunchRecord) -> bool:
        """Whether a script that died before its first steps under the limit shows them without the limit."""
        limit = self.fix.launches.memory_limit_bytes
        room, died_at = room_beyond(limit), read_evidence(told, None, None).died_at
        if limit is None or room is None:
            return False
        with self.fix.limited_to(room):
            whole = self._look(0)
        look = look_at(whole.seen, warm_steps=WARM_STEPS, start_s=whole.start_s)
        if look is None or whole.num_steps <= LEAST_STEPS or look.ranks > 1:
            return False
        evidence = replace(read_evidence(whole, look, None), died_at=died_at)
        first = FirstStep(evidence, told.num_steps, limit, room)
        self.seen = look, evidence
        self.length = length_of(whole, look, evidence.evaluated_after, self.deadline.left_s)
        self.notes.append(describe_death(first, look))
        candidates = [one for one in self._candidates(evidence, died=False) if one.rewrite in OF_MEMORY]
        for index, candidate in enumerate(candidates):
            if self.deadline.left_s < self._cost_s(look, launches=4):
                self.untried += len(candidates) - index
                self.notes.append(f"{self.deadline.told}: changes that were not tried are not offered")
                break
            proof = self._prove_first_step(candidate, look, first)
            if proof.claim in self.allowed and proof.is_gain:
                self._accept(proof)
                break
            self.lost.append(proof)
            self.untried += proof.is_open
        return True

    def _prove_first_step(self, candidate: Candidate, look: ScriptLook, first: FirstStep) -> FixProof:
        """Compare the changed script under the limit with the original script without the limit, in turns."""
        self.deadline.show(self.progress, f"trying {candidate.rewrite} at {name_of(candidate.file)}:{candidate.line}")
        files, environment = _changes(candidate)
        steps = self.length.steps
        after = [self._recorded(look, steps, files, environment)]
        if after[0].shortage is not None and not candidate.environment:
            # freed memory stays in the heap: this variable gives it back, so the command is printed with the variable
            candidate = replace(candidate, environment=tuple(GIVES_BACK.items()))
            files, environment = _changes(candidate)
            after = [self._recorded(look, steps, files, environment)]
        if after[0].failure or after[0].shortage is not None or after[0].timed_out:
            return judge(candidate, [], after, boundaries=0)
        with self.fix.limited_to(first.room_bytes):
            before = [self._recorded(look, steps) for _ in range(2)]
        self.unequal = self.unequal or equal_to_itself(before)
        after.append(self._recorded(look, steps, files, environment))
        proof = judge(candidate, before, after, boundaries=boundaries_of(look, before[0]))
        proof = judge_first_step(proof, first, 0 if after[-1].record is None else after[-1].record.steps)
        if not may_be_rounding(replace(proof, lives=True), before, after):
            return proof
        with self.fix.limited_to(first.room_bytes):
            return judge_first_step(self._rounded(proof, before, after, look, PLAIN), first, steps or 0)

    def _keep_the_first(self) -> None:
        """Keep only the first of several changes that are not proved together: it was proved on the original script."""
        first, *others = self.accepted
        self.notes.append(
            "the changes could not be proved together, so only the first is offered; run the command again for more"
        )
        self.lost += [
            replace(proof, why="proved on top of another change, but not together with it") for proof in others
        ]
        self.accepted = [first]
        self.before, self.fix.files, self.fix.environment = {}, {}, {}
        self._apply(first.candidate)

    def _look(self, number: int) -> LaunchRecord:
        seconds = min(_LOOK_S, 0.08 * self.deadline.budget_s)
        evaluation_s = max(seconds, _EVALUATION_SHARE * self.deadline.left_s)
        again = ", again" if number else f", for up to {format_seconds(evaluation_s)} until the script evaluates"
        self.deadline.show(self.progress, f"finding out where the steps spend their time{again}")
        patience_s = _LOOK_SHARE * self.deadline.left_s
        return self.fix.look(seconds=seconds, evaluation_s=evaluation_s, patience_s=patience_s)

    def _improve(self, evidence: RunEvidence, look: ScriptLook, *, died: bool) -> bool:
        """Try the candidates of the evidence in order until one is accepted; returns whether one was."""
        candidates = self._candidates(evidence, died=died)
        for index, candidate in enumerate(candidates):
            if self.deadline.left_s < self._cost_s(look, launches=2 if died else 3):
                self.untried += len(candidates) - index
                self.notes.append(f"{self.deadline.told}: changes that were not tried are not offered")
                return False
            self.tried.add((candidate.rewrite, candidate.after))
            self.deadline.show(
                self.progress, f"trying {candidate.rewrite} at {name_of(candidate.file)}:{candidate.line}"
            )
            proof = self._prove_alive(candidate, look) if died else self._prove(candidate, look)
            if proof is None:
                return False
            if proof.claim in self.allowed and proof.is_gain:
                self._accept(proof)
                return True
            self.lost.append(proof)
            self.untried += proof.is_open
            if candidate.rewrite in (WORKERS, ONE_WORKER) and not proof.is_gain and (busy := why_no_core(self.load)):
                self.notes.append(busy)
        return False

    def _candidates(self, evidence: RunEvidence, *, died: bool) -> list[Candidate]:
        found: list[Candidate] = []
        for file in files_of(evidence, Path.cwd()):
            changed = self.fix.files.get(file)
            try:
                source = read_source(file) if changed is None else parse_source(file, changed)
            except UnfixableError as problem:
                self.notes.append(f"{name_of(file)} is left unchanged: {problem}")
                continue
            proposals = propose_in(source, evidence)
            self.refused += [one for one in proposals if isinstance(one, Refusal)]
            found += [one for one in proposals if isinstance(one, Candidate)]
        left = [one for one in found if (one.rewrite, one.after) not in self.tried]
        left.sort(key=lambda one: _PLACES[one.rewrite])
        if died or Claim.ROUNDING in self.allowed:
            return left
        tries = f"gpudoc fix --allow rounding -- {shlex.join(self.options.command)}"
        why = f"it sums in a different order: `{tries}` tries it and compares it with control runs"
        self.refused += [Refusal(one.rewrite, one.file, one.line, why) for one in left if one.claim is Claim.ROUNDING]
        return [one for one in left if one.claim is not Claim.ROUNDING]

    def _prove(self, candidate: Candidate, look: ScriptLook) -> FixProof | None:
        """Alternate launches: original, changed, original, changed; None if the original script fails when recorded."""
        files, environment = _changes(candidate)
        order = SINGLE if candidate.rewrite == FLOAT64 else PLAIN
        # single-precision batches are only compared with single-precision batches
        usual = self.base if order is PLAIN else None
        before = [usual or self._recorded(look, self.length.steps, rounding=order)]
        if (
            before[0].failure
            or before[0].shortage is not None
            or (before[0].record is None and not before[0].timed_out)
        ):
            self.notes.append(f"a recorded run of the script failed: {before[0].failure or 'memory ran out'}")
            return None
        after = [self._recorded(look, self.length.steps, files, environment, order)]
        if after[0].failure or after[0].shortage is not None or before[0].timed_out or after[0].timed_out:
            self.base = None if before[0].timed_out or order is not PLAIN else before[0]
            return judge(candidate, before, after, boundaries=0)
        before.append(self._recorded(look, self.length.steps, rounding=order))
        self.unequal = self.unequal or equal_to_itself(before)
        after.append(self._recorded(look, self.length.steps, files, environment, order))
        if order is PLAIN:
            self.base = before[-1]
            self.first = self.first or before
        proof = judge(candidate, before, after, boundaries=boundaries_of(look, before[0]))
        if not may_be_rounding(proof, before, after):
            return proof
        self.deadline.show(self.progress, "how far one bit in the initial weights moves the original script")
        return self._rounded(proof, before, after, look, order)

    def _rounded(
        self, proof: FixProof, before: _Runs, after: _Runs, look: ScriptLook, order: RoundingOrder
    ) -> FixProof:
        return judge_by_controls(
            proof, before, after,
            lambda nudge: self._recorded(look, self.length.steps, rounding=replace(order, nudge=nudge)),
            has_time=lambda: self.deadline.left_s >= self._cost_s(look, launches=2),
        )  # fmt: skip

    def _prove_alive(self, candidate: Candidate, look: ScriptLook) -> FixProof:
        if self.base is None or self.base.shortage is None:
            self.base = self._recorded(look, None)
        if self.base.shortage is None or self.base.record is None:
            return FixProof(candidate=candidate, claim=None, why="it does not run out of memory while it is recorded")
        after = self._recorded(look, 3 * self.base.record.steps, *_changes(candidate))
        return judge_alive(candidate, self.base, after)

    def _prove_whole(self) -> FixProof | None:
        """Prove all changes together against the original script, since they may interact. None if that fails."""
        assert self.seen is not None
        look = self.seen[0]
        if any(proof.lives for proof in self.accepted):
            return None
        self.deadline.show(self.progress, "proving all changes together")
        files, environment = self.fix.files, self.fix.environment
        self.fix.files, self.fix.environment = {}, {}
        try:
            before = [*self.first, self._recorded(look, self.length.steps)]
            after = [self._recorded(look, self.length.steps, files, environment) for _ in range(2)]
        finally:
            self.fix.files, self.fix.environment = files, environment
        proof = judge(self.accepted[-1].candidate, before, after, boundaries=boundaries_of(look, before[0]))
        return proof if proof.claim in self.allowed and proof.is_gain else None

    def _accept(self, proof: FixProof) -> None:
        candidate = proof.candidate
        self.accepted.append(proof)
        self._apply(candidate)
        self.base = None
        self.progress.say(f"proved: {candidate.rewrite} at {name_of(candidate.file)}:{candidate.line}")

    def _apply(self, candidate: Candidate) -> None:
        if candidate.after != candidate.before:
            self.before.setdefault(candidate.file, candidate.before)
            self.fix.files[candidate.file] = candidate.after.encode("utf-8")
        self.fix.environment.update(candidate.environment)

    def _recorded(
        self,
        look: ScriptLook,
        steps: int | None,
        files: Mapping[Path, bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        rounding: RoundingOrder = PLAIN,
    ) -> RecordedRun:
        left_s = self.deadline.left_s
        if not left_s:
            return RecordedRun(
                record=None, batches=(), steps=0, seconds=0.0, peak_bytes=None, printed=(), ended=False,
                timed_out=True,
            )  # fmt: skip
        patience_s = min(left_s, _PATIENCE * (look.start_s + self.length.seconds) + 10)
        return self.fix.run(
            steps, patience_s=patience_s, files=files, environment=environment, rounding=rounding,
            digested=self.length.digested,
        )  # fmt: skip

    def _cost_s(self, look: ScriptLook, *, launches: int) -> float:
        return launches * (look.start_s + self.length.seconds)


def _changes(candidate: Candidate) -> tuple[dict[Path, bytes], dict[str, str]]:
    files = {} if candidate.after == candidate.before else {candidate.file: candidate.after.encode("utf-8")}
    return files, dict(candidate.environment)
