"""The loader's part of a search: tuned once the batch is chosen, kept in the journal as one trial."""

from __future__ import annotations

import time

from gpudoc.process.beside import Meter
from gpudoc.tune.findings import Findings, Plan
from gpudoc.tune.loader.bounds import bounds_here
from gpudoc.tune.loader.messages import Open
from gpudoc.tune.loader.search import LoaderChoice, is_negligible, tune_loader
from gpudoc.tune.loader.session import MeasurementError
from gpudoc.tune.search.session import WorkloadSession
from gpudoc.tune.trial.messages import End, Feed, Point, Request, Trial
from gpudoc.workload.config import Loaded

# the share of the time that is left when the closing comparison has its part
_SHARE = 0.5
LEAST_SECONDS = 4.0


class Feeder:
    """Chooses the loader for one workload; satisfies `stages.LoaderTuner`."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded

    def __call__(self, session: WorkloadSession, plan: Plan, found: Findings) -> None:
        """Measure and choose: fills `feed`, its reasons and its trials."""
        assert found.choice is not None
        request = Request(
            kind="loader", batches=(found.choice.batch,), variant=found.variant, ranks=session.runner.ranks
        )
        trial = session.find(request)
        if trial is None:
            try:
                trial = session.record(self._measure(session, request))
            except MeasurementError as problem:
                found.notes.append(f"the loader was not tuned: {problem}")
                return
        found.feed_trials = (trial,)
        found.feed = _feed(trial)
        share = trial.measured.get("loading_share")
        if plan.parts == {"loader"} and share is not None and is_negligible(share):
            found.nothing_to_gain = f"loading takes {share:.2%} of a step, so that no loader can make it much faster"
            found.needed_s = None
        found.feed_reasons = tuple(line for line in trial.detail.splitlines() if line)

    def _measure(self, session: WorkloadSession, request: Request) -> Trial:
        seconds = max(LEAST_SECONDS, _SHARE * session.free_s)
        start, meter = time.monotonic(), Meter()
        choice = tune_loader(
            Open(
                loaded=self._loaded,
                batch_size=request.batches[0],
                device=session.runner.device,
                variant=request.variant,
            ),
            bounds=bounds_here(ranks=request.ranks, seconds=seconds),
            progress=session.progress,
            deadline=session.deadline,
        )
        trial = _as_trial(choice, request, time.monotonic() - start)
        return trial.beside(meter.read(), on_gpu=session.runner.device != "cpu")


def _as_trial(choice: LoaderChoice, request: Request, seconds: float) -> Trial:
    batch = request.batches[0]
    measured = {
        "num_workers": float(choice.num_workers),
        "prefetch_factor": float(choice.prefetch_factor),
        "pin_memory": float(choice.pin_memory),
        "persistent_workers": float(choice.persistent_workers),
        "loading_share": round(choice.costs.mean_batch_s / choice.costs.step_s, 6),
    }
    for index, trial in enumerate(t for t in choice.trials if t.runs):
        row = (trial.setting.num_workers, trial.setting.prefetch_factor, trial.setting.pin_memory)
        measured[f"row{index}:{row[0]}:{row[1]}:{int(row[2])}:wait"] = trial.wait_share
        step_s = sorted(run.step_s for run in trial.runs)[len(trial.runs) // 2]
        measured[f"row{index}:{row[0]}:{row[1]}:{int(row[2])}:rate"] = batch / step_s
    return Trial(
        request=request,
        end=End.FITS,
        detail="\n".join(choice.reasons),
        points=(Point(batch=batch, step_s=(batch / choice.samples_per_s,)),),
        seconds=round(seconds, 3),
        measured=measured,
    )


def _feed(trial: Trial) -> Feed:
    return Feed(
        num_workers=int(trial.measured["num_workers"]),
        prefetch_factor=int(trial.measured["prefetch_factor"]),
        pin_memory=bool(trial.measured["pin_memory"]),
        persistent_workers=bool(trial.measured["persistent_workers"]),
    )
