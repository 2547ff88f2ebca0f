"""The entry point of training: takes a request, yields a stream of events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from gpudoc.errors import GpudocError
from gpudoc.process.imports import uncollected
from gpudoc.train.events import Event, Finished, NothingLearnedError, Said
from gpudoc.train.request import TrainRequest, go_on
from gpudoc.train.stop import Stop, slurm_deadline


def run(request: TrainRequest) -> Iterator[Event]:
    """Train as requested. The last event is `Finished`, unless a GpudocError names the problem.

    Signals are handled from the start; leaving the iterator early ends workers and releases the run directory.
    """
    stop = Stop(slurm_deadline())
    with stop.listening():
        with uncollected():
            # every optimizer imports it on creation
            import torch._dynamo  # noqa: F401

            from gpudoc.train.blame import in_kernel
            from gpudoc.train.start.build import build

        began = time.perf_counter()
        built = yield from build(request, stop)
        if isinstance(built, Finished):
            yield built
            return
        job, lock = built
        stop.last_words = f"Continue with: {go_on(request, job.run.path)}"
        from gpudoc.process.cpu_load import LoadMeter
        from gpudoc.process.memory import lift_limit
        from gpudoc.train.loop.loop import note_of_syncs
        from gpudoc.train.watch.watching import Hangs, events_of, watching

        progress = job.course.progress
        problem: Exception | None = None
        meter = LoadMeter()
        hangs = Hangs()
        try:
            try:
                yield from note_of_syncs(job.stepper)
                yield job.started()
                with watching(job, request.on_hang) as hangs:
                    yield from events_of(job, hangs)
            finally:
                # the report also needs memory, after a run that used all of it
                lift_limit()
        except Exception as caught:
            problem = in_kernel(caught, progress.step + 1)
        finally:
            with suppress(OSError):
                for _ in hangs.tell(job):
                    # only written down; there may be no listener any more
                    pass
                job.sinks.close()
        yield from (Said(text, warning=True) for text in job.sinks.tell())
        from gpudoc.train.report.finish import finish

        finished = finish(request, job, problem, time.perf_counter() - began, meter.read())
        if lock is not None:
            lock.remove()
        if problem is not None:
            raise explain(problem, finished.go_on)
        yield finished


def explain(problem: Exception, command: str | None) -> Exception:
    """A failure with the command to continue; other errors than GpudocError are faults of gpudoc and stay unchanged."""
    if not isinstance(problem, GpudocError):
        return problem
    if isinstance(problem, NothingLearnedError):
        command = None
    again = f"{problem.hint}; then: {command}" if problem.hint and command else problem.hint or command or ""
    explained = type(problem)(problem.message, hint=again, exit_code=problem.exit_code)
    explained.__cause__ = problem.__cause__
    return explained
