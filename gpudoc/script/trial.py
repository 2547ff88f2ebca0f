"""One trial: starts the script with an order, listens to it, and ends all of its processes once it is measured."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from gpudoc.process.cgroup import oom_kills
from gpudoc.process.cpu_load import LoadMeter
from gpudoc.process.openmp import missing_for_any
from gpudoc.script import launch
from gpudoc.script.cell import Cell
from gpudoc.script.command import Command
from gpudoc.script.hook import EventReader, environment
from gpudoc.script.launch import Launch
from gpudoc.script.loads import Loads
from gpudoc.script.look import Lever
from gpudoc.script.messages import HookOrder, LoaderOrder, LoaderSeen
from gpudoc.script.outcome import LaunchRecord, trial_of
from gpudoc.tune.trial.messages import WAKE_S, Trial, TrialRequest

WARM_STEPS = 3
LOOK_STEPS, LOOK_S = 24, 3.0
# the workers' queue is full when the timing begins; the cap matters if workers prepare many batches ahead
_MOST_WARM_STEPS = 48
_POLL_S = 0.2
_UNDER_LIMIT = ("fit", "steady", "speed")
_LAGGARD_S = 3.0
_TAIL_BYTES = 100_000
# the value for {batch} if the command needs one and nothing else is known
FIRST_BATCH = 16
# these trackers' own off switches: a trial is not a run of the user
TRACKERS_OFF: Mapping[str, str] = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(slots=True, kw_only=True)
class Launches:
    """Starts the script for each trial.

    `isolated` puts each launch into a separate cell, `network` lets it use the machine's network. `keys` name the
    loaders that an order is for, once the look has found them; `own_ahead` is the number of batches that the script's
    workers prepare ahead. `needs_batch`: the command does not train without {batch}. Every launch runs under
    `memory_limit_bytes`, or under `batch_limit_bytes` if that is set and the launch tries a batch. Torch takes at most
    `device_limit_bytes` of the GPU `device_index`, or of each local rank's GPU.
    """

    command: Command
    scratch: Path
    isolated: bool
    network: bool = False
    memory_limit_bytes: int | None = None
    batch_limit_bytes: int | None = None
    device_limit_bytes: int | None = None
    device_index: int | None = None
    lever: Lever = "none"
    keys: tuple[str, ...] = ()
    own_ahead: int = 0
    needs_batch: bool = False
    count: int = 0
    last: LaunchRecord | None = None
    starting: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def look(self, words: tuple[str, ...], *, patience_s: float) -> LaunchRecord:
        """Launch the unchanged script for a few seconds of steady steps."""
        order = HookOrder(purpose="look", warm_steps=WARM_STEPS, steps=LOOK_STEPS, seconds=LOOK_S, wake_s=WAKE_S)
        return self._launch(words, order, patience_s, self.memory_limit_bytes)

    def run(self, request: TrialRequest, *, patience_s: float) -> Trial:
        """Run the trial of `request`; give up if nothing was measured after `patience_s`."""
        order = self._order(request)
        batch = request.batches[0] if request.batches else None
        words = self.command.at(batch)
        if self.lever == "flag" and batch is None:
            plain = None if self.needs_batch else self.command.without_batch()
            words = plain or self.command.at(FIRST_BATCH)
        limit = self.memory_limit_bytes
        if request.kind in _UNDER_LIMIT:
            limit = None if request.unlimited else self.batch_limit_bytes or limit
        waits = missing_for_any(request.variant.wait_policy, self.starting)
        told = self._launch(words, order, patience_s, limit, waits)
        trial = trial_of(request, told, warm_steps=order.warm_steps, wake_s=order.wake_s)
        return trial.model_copy(update={"refused": _refused(told, self.keys), "notes": _notes(told, self.keys)})

    def recorded(
        self, order: HookOrder, *, patience_s: float, files: Mapping[Path, bytes], more: Mapping[str, str]
    ) -> LaunchRecord:
        """Launch the unchanged command with the caller's order and with other contents in some files."""
        return self._launch(self.command.words, order, patience_s, self.memory_limit_bytes, more, files)

    def _order(self, request: TrialRequest) -> HookOrder:
        feed, ahead = request.feed, self.own_ahead
        loader = None
        if feed is not None:
            ahead = feed.num_workers * feed.prefetch_factor
            loader = LoaderOrder(
                num_workers=feed.num_workers,
                prefetch_factor=feed.prefetch_factor if feed.num_workers else None,
                pin_memory=feed.pin_memory,
                persistent_workers=feed.persistent_workers if feed.num_workers else None,
            )
        is_fit = request.kind in ("fit", "steady")
        return HookOrder(
            purpose="trial",
            keys=self.keys,
            loader=loader,
            batch=request.batches[0] if request.batches and self.lever == "loader" else None,
            longest_first=is_fit,
            warm_steps=1 if is_fit else min(_MOST_WARM_STEPS, WARM_STEPS + ahead),
            steps=request.steps,
            seconds=request.seconds_per_batch,
            # a trial that only tests memory needs no awake GPU
            wake_s=0.0 if is_fit else WAKE_S,
            device_limit_bytes=self.device_limit_bytes,
            device_index=self.device_index,
        )

    def _launch(
        self,
        words: tuple[str, ...],
        order: HookOrder,
        patience_s: float,
        limit_bytes: int | None,
        more: Mapping[str, str] = MappingProxyType({}),
        files: Mapping[Path, bytes] = MappingProxyType({}),
    ) -> LaunchRecord:
        self.count += 1
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self.scratch) as name:
            folder = Path(name) / "events"
            folder.mkdir()
            variables = environment(folder, order, {**self.starting, **TRACKERS_OFF, **more})
            cell = Cell(scratch=self.scratch, network=self.network, files=files) if self.isolated else None
            kills, began, meter = oom_kills(), time.monotonic(), LoadMeter()
            running = launch.start(
                words,
                environment=variables,
                output=Path(name) / "output",
                cell=cell,
                memory_limit_bytes=limit_bytes,
            )
            with running:
                ended = _listen(running, EventReader(folder), patience_s, meter)
            self.last = replace(
                ended,
                seconds=time.monotonic() - began,
                cgroup_killed=oom_kills() > kills,
                has_network=self.network or cell is None or not cell.isolation.network,
                room_bytes=0 if cell is None else cell.room,
            )
        return self.last


def _listen(running: Launch, reader: EventReader, patience_s: float, meter: LoadMeter) -> LaunchRecord:
    """Listen until the ordered steps have run, the command has ended, or `patience_s` is over."""
    began = time.monotonic()
    first_s: float | None = None
    measured_at: float | None = None
    loads = Loads(running.pid)
    while True:
        status = running.poll(_POLL_S)
        seen, now = reader.read(), time.monotonic()
        steps = max((one.total.steps for one in seen), default=0)
        if steps and first_s is None:
            first_s = max(0.0, now - began - max(one.total.seconds for one in seen))
        if status is None:
            loads.sample(steps)
        trains = [one for one in seen if one.trains]
        if measured_at is None and any(one.measured for one in trains):
            measured_at = now
        all_measured = bool(trains) and all(one.measured for one in trains)
        # ranks measure their steps together; a straggler is not waited for long
        is_measured = all_measured or (measured_at is not None and now - measured_at > _LAGGARD_S)
        timed_out = now - began > patience_s
        if status is not None or is_measured or timed_out:
            full = running.full
            # this comes before the end: the kernel adds the CPU time of a killed cell to no other process
            beside = meter.read()
            if status is None:
                running.end()
            return LaunchRecord(
                seen=seen,
                status=None if is_measured else status,
                tail=running.tail(_TAIL_BYTES),
                seconds=now - began,
                start_s=now - began if first_s is None else first_s,
                timed_out=timed_out and not is_measured,
                full=full,
                loads=loads.figures(),
                beside=beside,
            )


def _ordered(told: LaunchRecord, keys: tuple[str, ...]) -> list[LoaderSeen]:
    return [loader for one in told.seen for loader in one.loaders if loader.key in keys]


def _refused(told: LaunchRecord, keys: tuple[str, ...]) -> dict[str, str]:
    """Settings that the script's training loader refused, and why; num_workers and batch_size if it was not built."""
    found = _ordered(told, keys)
    if keys and not found and told.num_steps:
        why = _other_loader(told, keys[0])
        return {"num_workers": why, "batch_size": why}
    return {str(name): why for loader in found for name, why in loader.refused.items()}


def _other_loader(told: LaunchRecord, key: str) -> str:
    place, dataset, length = [*key.split("|"), "", ""][:3]
    here = [loader for one in told.seen for loader in one.loaders if loader.key.split("|")[0] == place]
    if not here:
        return "the loader of the first launch was not built in the next one, so nothing can be compared"
    other = f"{here[0].dataset} of {here[0].samples} samples"
    return f"the data set differs from launch to launch: {dataset} of {length} samples, then {other}"


def _notes(told: LaunchRecord, keys: tuple[str, ...]) -> tuple[str, ...]:
    """What the applied settings may change in the script."""
    return tuple(dict.fromkeys(note for loader in _ordered(told, keys) for note in loader.notes))
