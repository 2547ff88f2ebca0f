"""The acceptance plan on a machine with a GPU: every step, what gpudoc guesses beside what the card says, one record.

    make gpu-check                                            # the right PyTorch, then all steps: 25 minutes
    python -m benchmarks.gpu_check --quick                    # what five minutes can show
    python -m benchmarks.gpu_check --only machine,constants   # only these
    python -m benchmarks.gpu_check --compare FIRST SECOND     # two records

A step that fails is in the record with its output, the next one runs, and the exit status is 1. A step is ended with
all that it started when its time is over, and the record is written after each step. It names the card and the
versions, never the host or a user; docs/gpu-check.md says what to do with it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gpudoc
from benchmarks.gpu_check import runner, steps
from benchmarks.gpu_check.compare import compare_outcomes, compare_records
from benchmarks.gpu_check.keeping import RECORDS, Keeper, latest_of, name_of
from benchmarks.gpu_check.model import Outcome, Record, Step
from benchmarks.gpu_check.report import closing_lines, outcome_lines
from gpudoc import facts
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Gpu, Machine
from gpudoc.process.compiler import can_compile

WHOLE_S, QUICK_S = 1500.0, 300.0
# what several GPUs may add
SEVERAL_S = 1200.0
# a step with less than this would only be cut
LEAST_S = 10.0
STOPPED = 130


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Check:
    """One run: its record, where that is kept, and when it has to end."""

    record: Record
    keeper: Keeper
    total_s: float
    began: float

    def carry_out(self, plan: Sequence[Step]) -> int:
        """Run the plan, then what is repeated; the exit status."""
        again = [replace(step, name=f"{step.name} again") for step in plan if step.is_repeated]
        todo = [*plan, *again]
        before: Sequence[int | None] = ()
        dead = ""
        try:
            before = runner.held()
            while todo:
                outcome = self._outcome(todo[0], dead, before)
                self._add(outcome)
                todo.pop(0)
                if outcome.state in ("failed", "cut") and not dead:
                    why = runner.why_dead()
                    dead = why and f"the GPU has not computed since {outcome.step}: {why}"
                    if dead:
                        say(f"       ! {dead}")
        except runner.StopError as signal:
            self._add(Outcome(step=todo.pop(0).name, state="stopped", sentences=[f"the run was stopped by {signal}"]))
            for step in todo:
                self._add(Outcome(step=step.name, state="left out", sentences=["the run was stopped"]))
        self._close()
        if any(one.state == "stopped" for one in self.record.outcomes):
            return STOPPED
        return int(bool(self.record.failed))

    def _outcome(self, step: Step, dead: str, before: Sequence[int | None]) -> Outcome:
        left_s = self.total_s - (time.monotonic() - self.began)
        absent = dead or step.absent or ("" if left_s >= LEAST_S else "no time left")
        if absent:
            return Outcome(step=step.name, state="left out", sentences=[absent])
        say(f"{step.name} ...")
        outcome = runner.run_step(step, min(step.limit_s, left_s), before)
        first = next((one for one in self.record.outcomes if f"{one.step} again" == step.name), None)
        if first is not None:
            self.record.differences += compare_outcomes(first, outcome)
        return outcome

    def _add(self, outcome: Outcome) -> None:
        self.record.outcomes.append(outcome)
        self.record.seconds = round(time.monotonic() - self.began, 1)
        if outcome.step == "machine":
            self.record.machine |= outcome.facts
        for line in outcome_lines(outcome):
            say(line)
        self.keeper.keep(self.record)

    def _close(self) -> None:
        for line in closing_lines(self.record):
            say(line)
        if self.keeper.path is None:
            say("no disk takes the record, so it follows:")
            say(self.record.to_text())
        else:
            say(f"record: {self.keeper.path}")


def place_of(machine: Machine, may_change: bool) -> steps.Place:
    """What decides about steps, from facts alone: torch is not imported here."""
    gpus = gpus_of(machine)
    visible = machine.driver.cuda_devices
    capability = gpus[0].capability if gpus else None
    known = capability if isinstance(capability, tuple) else None
    return steps.Place(
        num_gpus=len(gpus) if isinstance(visible, Absent) else len(visible),
        is_wsl=machine.host.wsl is True,
        has_mig=any(gpu.mig_enabled is True for gpu in gpus),
        may_change=may_change,
        can_compile=bool(gpus) and can_compile("cuda", known),
    )


def gpus_of(machine: Machine) -> tuple[Gpu, ...]:
    return () if isinstance(machine.gpus, Absent) else machine.gpus


def plan_of(place: steps.Place, chosen: argparse.Namespace, folder: Path) -> Iterator[Step]:
    """The steps that are asked for; without a GPU doctor alone can run."""
    plan = steps.quick_plan() if chosen.quick else steps.whole_plan(place, folder)
    wanted = list(filter(None, chosen.only.split(",")))
    standard = QUICK_S if chosen.quick else WHOLE_S
    found = list(steps.stretched(plan, (60 * chosen.minutes / standard) if chosen.minutes else 1.0))
    unknown = [name for name in wanted if name not in {step.name for step in found}]
    if unknown:
        sys.exit(f"no such step: {', '.join(unknown)}; there are {', '.join(step.name for step in found)}")
    for step in found:
        if not wanted or step.name in wanted:
            none = "" if place.num_gpus or step.name == "doctor" else "the driver shows no GPU here; doctor says why"
            yield replace(step, absent=none or step.absent, is_repeated=step.is_repeated and not wanted)


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=runner.ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "not known"
    return done.stdout.strip() or "not known"


def begin(chosen: argparse.Namespace) -> int:
    """One run, from the first question to the last line."""
    now = datetime.datetime.now(datetime.timezone.utc)
    machine = facts.collect(quick=True)
    place = place_of(machine, chosen.change_limits)
    gpus = gpus_of(machine)
    card = str(gpus[0].name) if gpus and not isinstance(gpus[0].name, Absent) else "no GPU"
    standard_s = QUICK_S if chosen.quick else WHOLE_S + (SEVERAL_S if place.num_gpus > 1 else 0.0)
    earlier = latest_of(card)
    check = Check(
        record=Record(
            machine={"gpu0.name": card},
            gpudoc=gpudoc.__version__,
            commit=commit(),
            began=f"{now:%Y-%m-%d %H:%M:%S} UTC",
            is_quick=chosen.quick,
            is_standin=importlib.util.find_spec("standin_hook") is not None,
        ),
        keeper=Keeper(chosen.record or RECORDS / name_of(card, now), say),
        total_s=60 * chosen.minutes if chosen.minutes else standard_s,
        began=time.monotonic(),
    )
    say(f"{card}, {place.num_gpus} in all; at most {check.total_s / 60:.0f} minutes")
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as name, runner.stoppable():
        status = check.carry_out(list(plan_of(place, chosen, Path(name))))
    if not place.num_gpus:
        status = status or 1
    if earlier is not None and status != STOPPED:
        for sentence in compare_records(earlier[1], check.record):
            say(f"unlike {earlier[0].name}: {sentence}")
    return status


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--quick", action="store_true", help="what five minutes can show")
    options.add_argument("--only", default="", help="names of steps, comma-separated")
    options.add_argument("--minutes", type=float, help="more or less time than 25 minutes, 5 with --quick")
    options.add_argument(
        "--change-limits", action="store_true", help="as root: also lower power and clocks for a minute"
    )
    options.add_argument("--record", type=Path, help="write the record to this file")
    options.add_argument("--compare", nargs=2, type=Path, metavar=("FIRST", "SECOND"), help="compare two records")
    chosen = options.parse_args()
    try:
        if chosen.compare:
            found = compare_records(*map(Record.load, chosen.compare))
            say("\n".join(found) or "nothing differs")
            sys.exit(bool(found))
        sys.exit(begin(chosen))
    except (GpudocError, ValueError, OSError) as problem:
        sys.exit(f"gpu-check: {problem}")


if __name__ == "__main__":
    main()
