"""The loader's part of a search: it is tuned once the batch is chosen, and is one trial in the journal."""

from __future__ import annotations

import time

from gpudoc.process.cpu_load import LoadMeter
from gpudoc.profile.model import Loader, LoaderTrial
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.loader.bounds import bounds_here
from gpudoc.tune.loader.messages import Open
from gpudoc.tune.loader.search import LoaderChoice, tune_loader
from gpudoc.tune.loader.session import MeasurementError
from gpudoc.tune.model.loader import is_negligible
from gpudoc.tune.search.session import WorkloadSession
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest
from gpudoc.workload.config import LoadedConfig

# share of the time that is left without the closing comparison's part
_SHARE = 0.5
LEAST_SECONDS = 4.0


class Feeder:
    """Chooses the loader for one workload; satisfies `stages.LoaderTuner`."""

    def __init__(self, loaded: LoadedConfig) -> None:
        self._loaded = loaded

    def __call__(self, session: WorkloadSession, plan: SearchPlan, found: Findings) -> None:
        """Measure and choose; fills `feed`, its reasons and its trials."""
        assert found.choice is not None
        request = TrialRequest(
            kind="loader", batches=(found.choice.batch,), variant=found.variant, ranks=session.runner.ranks
        )
        trial = session.find(request)
        if trial is None:
            try:
                trial = session.record(self._measure(session, request))
            except MeasurementError as problem:
                found.notes.append(f"the loader was not tuned: {problem}")
                if problem.is_late:
                    found.unsearched = f"the loader was not searched: {problem}"
                return
        found.feed_trials = (trial,)
        found.feed = trial.chosen
        found.num_loaders = sum(row.num_workers > 0 for row in trial.loaders)
        share = trial.measured.get("loading_share")
        if plan.parts == {"loader"} and share is not None and is_negligible(share):
            found.nothing_to_gain = f"loading takes {share:.2%} of a step, so no loader can make it much faster"
            found.needed_s = None
        found.feed_reasons = tuple(line for line in trial.detail.splitlines() if line)

    def _measure(self, session: WorkloadSession, request: TrialRequest) -> Trial:
        seconds = max(LEAST_SECONDS, _SHARE * session.free_s)
        start, meter = time.monotonic(), LoadMeter()
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


def _as_trial(choice: LoaderChoice, request: TrialRequest, seconds: float) -> Trial:
    batch = request.batches[0]
    return Trial(
        request=request,
        end=End.FITS,
        detail="\n".join(choice.reasons),
        points=(Point(batch=batch, step_s=(batch / choice.samples_per_s,)),),
        seconds=round(seconds, 3),
        measured={"loading_share": round(choice.costs.mean_batch_s / choice.costs.step_s, 6)},
        chosen=Loader(
            num_workers=choice.num_workers,
            prefetch_factor=choice.prefetch_factor,
            pin_memory=choice.pin_memory,
            persistent_workers=choice.persistent_workers,
        ),
        loaders=tuple(
            LoaderTrial(
                num_workers=trial.setting.num_workers,
                prefetch_factor=trial.setting.prefetch_factor,
                samples_per_s=round(batch / sorted(run.step_s for run in trial.runs)[len(trial.runs) // 2], 2),
                wait_share=round(trial.wait_share, 4),
                pin_memory=trial.setting.pin_memory,
                persistent_workers=choice.persistent_workers,
            )
            for trial in choice.trials
            if trial.runs
        ),
    )
