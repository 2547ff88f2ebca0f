"""The entry point of `bench`: start the measuring process, keep every reading, and settle them into a record."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import gpudoc
from gpudoc.bench.assess import assess
from gpudoc.bench.cases.catalog import case_names, cases_for
from gpudoc.bench.ceilings import ceiling_of
from gpudoc.bench.compare import refuse_unlike
from gpudoc.bench.documents import reading_from_json
from gpudoc.bench.environment import describe, make_plan
from gpudoc.bench.model import NotMeasured, Parameter, RawReading, Record, Situation
from gpudoc.bench.sampling import SamplingPlan
from gpudoc.bench.settle import settle, split_enough
from gpudoc.bench.telemetry import Telemetry, annotate, open_telemetry
from gpudoc.bench.verdicts import find_causes
from gpudoc.bench.worker import plan_to_json
from gpudoc.errors import GpudocError
from gpudoc.facts.model import NOT_READ, Absent, Machine
from gpudoc.process.arguments import own_module
from gpudoc.process.conversation import Conversation
from gpudoc.process.imports import refuse_broken_torch
from gpudoc.progress import SILENT, Progress
from gpudoc.units import parse_duration

# a worker that is silent for this long is taken for hung
SILENCE_S = 60.0
# the progress bar stops at this share until the run ends
_FULLEST = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options; `device` is already chosen: 'cpu' or 'cuda:N'."""

    device: str = "cpu"
    only: tuple[str, ...] = ()
    quick: bool = False
    soak_s: float = 0.0
    data: Path | None = None
    old: Record | None = None

    @staticmethod
    def of(device: str, only: str, quick: bool, data: Path | None, old: Record | None, soak: str = "") -> Options:
        """The options with the names in `only` split at commas; `old` is the record to compare the run with.

        GpudocError (exit 2) if `soak` is not a duration, or is given on a CPU, and in the cases of `check_options`.
        """
        names = tuple(name.strip() for name in only.split(",") if name.strip())
        made = Options(device=device, only=names, quick=quick, soak_s=_soak_s(soak, device), data=data, old=old)
        check_options(made)
        return made


def _soak_s(text: str, device: str) -> float:
    try:
        seconds = parse_duration(text) if text else 0.0
    except ValueError as error:
        raise GpudocError(f"--soak: {error}", hint="--soak 60s") from error
    if seconds and device == "cpu":
        raise GpudocError("--soak needs a GPU, but this run measures a CPU", hint="leave out --soak")
    return seconds


@dataclass(slots=True)
class Harvest:
    """The messages from the measuring process so far."""

    readings: list[RawReading] = field(default_factory=list)
    not_measured: list[NotMeasured] = field(default_factory=list)
    environment: dict[str, Parameter] = field(default_factory=dict)
    interrupted: bool = False
    telemetry: Telemetry | Absent = NOT_READ
    pci_address: str = ""

    @property
    def is_cut_short(self) -> bool:
        """Whether the run ended before its last process did: its readings are kept as they are then."""
        return self.interrupted or any(one.failed for one in self.not_measured)

    def settled_readings(self) -> list[RawReading]:
        """The readings, each with the counters seen during it."""
        if isinstance(self.telemetry, Absent):
            return self.readings
        self.telemetry.stop()
        return annotate(self.readings, self.telemetry.looks)

    def reasons(self) -> tuple[NotMeasured, ...]:
        """The missing measurements, each once: every process skips the same case, with its own number of seconds."""
        kept: dict[object, NotMeasured] = {}
        for one in self.not_measured:
            kept.setdefault(one if one.failed else one.case, one)
        return tuple(kept.values())


def run(options: Options, machine: Machine, progress: Progress = SILENT) -> Record:
    """Measure and judge. Ctrl+C, a hung driver or a killed worker end the run early and keep its measurements.

    GpudocError (exit 2) if torch cannot be imported.
    """
    check_options(options)
    started = time.monotonic()
    plan = make_plan(options.device, machine, quick=options.quick, only=options.only, data=options.data)
    plan = replace(plan, soak_s=options.soak_s)
    known = describe(plan, machine)
    if options.old is not None:
        # before a minute is spent on a run that cannot be compared
        refuse_unlike(options.old.environment, known)
    harvest = Harvest(pci_address=str(known.get("pci_address", "")))
    try:
        _measure(plan, harvest, progress)
    except KeyboardInterrupt:
        harvest.interrupted = True
    environment = {"gpudoc": gpudoc.__version__, **known, **harvest.environment}
    rows = settle(harvest.settled_readings())
    if options.quick and options.device == "cpu" and not harvest.is_cut_short:
        rows, few = split_enough(rows)
        harvest.not_measured += few
    situation = judge(Situation(machine=machine, device=options.device, environment=environment, rows=rows))
    return Record(
        environment=environment,
        measurements=situation.rows,
        not_measured=harvest.reasons(),
        findings=find_causes(situation),
        interrupted=harvest.interrupted,
        seconds=time.monotonic() - started,
    )


def judge(situation: Situation) -> Situation:
    """The same rows with their ceilings and doubts; pure."""
    rows = (replace(row, ceiling=ceiling_of(row, situation)) for row in situation.rows)
    return replace(situation, rows=tuple(assess(row, situation) for row in rows))


def check_options(options: Options) -> None:
    """GpudocError (exit 2) for a case that does not exist or a folder that cannot be read."""
    # a GPU run includes the CPU's cases, and both have a matmul
    known = list(dict.fromkeys(case.name for case in cases_for(options.device)))
    for name in options.only:
        if name not in known:
            where = "" if name not in case_names() else f" on {options.device}"
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise GpudocError(f"no such case{where}: {name}{meant}", hint=f"--only {','.join(known)}")
    if options.data is not None and not options.data.is_dir():
        raise GpudocError(
            f"not a folder: {options.data}", hint="--data DIR: name a folder with the files that training reads"
        )


def _measure(plan: SamplingPlan, harvest: Harvest, progress: Progress) -> None:
    worker = Conversation(own_module("gpudoc.bench.worker"), {**os.environ, "PYTHONWARNINGS": "ignore"})
    try:
        worker.say(plan_to_json(replace(plan, parent_pid=os.getpid())).encode())
        _follow(worker, plan.budget_s + plan.soak_s, harvest, progress)
    finally:
        worker.end()


def _follow(worker: Conversation, planned_s: float, harvest: Harvest, progress: Progress) -> None:
    started = heard = time.monotonic()
    doing = "starting torch"
    while True:
        now = time.monotonic()
        progress.advance(now - started, expected_s(now - started, planned_s), doing)
        try:
            line = worker.hear(0.25)
        except TimeoutError:
            if now - heard > SILENCE_S:
                _give_up(harvest, f"nothing was heard for {SILENCE_S:.0f} s while {doing}")
                return
            continue
        if line is None:
            break
        heard = time.monotonic()
        doing = _take(line, harvest) or doing
    if worker.process.wait() != 0:
        if not harvest.readings:
            refuse_broken_torch()
        how, complaint = worker.last_words()
        _give_up(harvest, f"the measuring process {how}: {complaint or 'it said nothing'}")


def expected_s(elapsed_s: float, planned_s: float) -> float:
    """Expected seconds of the whole run: as planned, or longer if a busy machine needs more; the bar is never full."""
    return max(planned_s, elapsed_s / _FULLEST)


def _meet_gpu(traits: Mapping[str, Any], harvest: Harvest) -> None:
    """Keep torch's facts about the GPU, and start its telemetry."""
    # only newer releases of torch report the address, libcuda always does
    address = harvest.pci_address or str(traits["pci_address"])
    harvest.environment |= {
        "sm_count": int(traits["sm_count"]),
        "l2_bytes": int(traits["l2_bytes"]),
        "integrated": "yes" if traits["integrated"] else "no",
        "pci_address": address,
    }
    harvest.telemetry = open_telemetry(address)
    if isinstance(harvest.telemetry, Absent):
        because = f"{harvest.telemetry.reason}: clocks, heat and throttling were not read during the run"
        harvest.not_measured.append(NotMeasured("counters", because))


def _give_up(harvest: Harvest, because: str) -> None:
    harvest.not_measured.append(NotMeasured("the rest of the run", because, failed=True))


def _take(line: bytes, harvest: Harvest) -> str:
    """Keep the content of one line; returns the text of the current work, or ''."""
    try:
        message = json.loads(line)
        event = message["event"]
        match event:
            case "reading":
                harvest.readings.append(reading_from_json(message["values"]))
            case "environment":
                harvest.environment.update(message["values"])
            case "gpu":
                _meet_gpu(message["values"], harvest)
            case "begin":
                return f"round {message['round'] + 1}: {message['meaning']}"
            case "alive":
                pass
            case "absent":
                harvest.not_measured.append(NotMeasured(message["case"], message["because"]))
            case "failed":
                harvest.not_measured.append(NotMeasured(message["case"], message["because"], failed=True))
            case "lost":
                _give_up(harvest, message["because"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        # a library that prints to stdout
        harvest.not_measured.append(
            NotMeasured("a line of the worker", f"not understood: {type(error).__name__}", True)
        )
    return ""
