"""A script that is not there: what its processes would tell, from a model of its memory, its step and its loader."""

from __future__ import annotations

from pathlib import Path

from gpudoc.profile.merge import Merged
from gpudoc.profile.model import Hardware
from gpudoc.progress import SILENT
from gpudoc.script.batch import size_batch
from gpudoc.script.command import Command
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.hook import ProcessSeen
from gpudoc.script.loader import tune_loader
from gpudoc.script.look import look_at
from gpudoc.script.messages import ErrorSeen, ExceptionLink, LoaderSeen, ScriptStart, StepsSeen, Total
from gpudoc.script.outcome import LaunchRecord, trial_of
from gpudoc.script.record import ScriptContext, make_profile
from gpudoc.script.runner import CommandRunner
from gpudoc.script.search import ScriptResult
from gpudoc.script.stages import run_stages
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.messages import TrialRequest

COMMAND = Command(("python", "train.py"))
START = ScriptStart(
    at=0.0, pid=10, ppid=1, rank=None, local_rank=None, world=None, program="train.py", python="3.11.0", torch="2.9.1",
    cuda=None,
)  # fmt: skip


def loader(**changes):
    known = {
        "at": 0.0, "number": 0, "key": "train.py:7", "place": "train.py:7", "file": "train.py", "line": 7,
        "through": "torch", "remade_from": None, "dataset": "Set", "samples": 4096, "sampler": "RandomSampler",
        "batch_size": 8, "num_workers": 0, "prefetch_factor": None, "pin_memory": False, "persistent_workers": False,
        "own_batch_sampler": False, "iterable": False, "sharded": False, "length": 512, "drop_last": False,
        "script": {},
    }  # fmt: skip
    return LoaderSeen.model_validate({**known, **changes})


def steps(seconds, wait_s, *, samples=8, first=0, **changes):
    """One event with a step for each of `seconds`."""
    known = {
        "at": 1.0, "first": first, "count": len(seconds), "seconds": tuple(seconds), "wait_s": tuple(wait_s),
        "samples": (samples,) * len(seconds), "loader": 0,
        "total": Total(steps=first + len(seconds), seconds=sum(seconds), wait_s=sum(wait_s)),
        "rank": None, "world": None, "device": "cpu", "device_name": None, "parameters": "torch.float32",
        "autocast": None, "tf32": None, "peak_bytes": 100 << 20,
    }  # fmt: skip
    return StepsSeen.model_validate({**known, **changes})


def seen(*events, loaders=None, error=None, **changes):
    built = (loader(),) if loaders is None else tuple(loaders)
    return ProcessSeen("0-10", START, built, steps=tuple(events), error=error, measured=True, **changes)


def error(text, *types):
    return ErrorSeen(at=1.0, chain=(ExceptionLink(types=types or ("RuntimeError",), text=text),))


def told(*processes, **changes):
    known = {"seen": processes, "status": None, "tail": "", "seconds": 5.0, "start_s": 2.0}
    return LaunchRecord(**{**known, **changes})


class Pretended:
    """Stands for `trial.Launches`: every request is answered from the model, and counted in `requests`.

    A batch takes `sample_s` of waiting for each sample, split among the workers; a step `fixed_s` + `step_s` a sample;
    memory `fixed_bytes` + `bytes_per_sample` a sample under `limit_bytes`. Threads that sleep while they wait make it
    `asleep` times as fast. What `beside` holds is measured in every launch, and others make its steps as many times as
    long as `slowed` says, in turns.
    """

    def __init__(self, **model):
        self.batch = model.get("batch", 8)
        self.sample_s = model.get("sample_s", 0.01)
        self.fixed_s, self.step_s = model.get("fixed_s", 0.02), model.get("step_s", 0.001)
        self.fixed_bytes = model.get("fixed_bytes", 64 << 20)
        self.bytes_per_sample = model.get("bytes_per_sample", 1 << 20)
        self.limit_bytes = model.get("limit_bytes", 256 << 20)
        self.refuses = model.get("refuses", {})
        self.eats = model.get("eats", False)
        self.asleep = model.get("asleep", 1.0)
        self.beside = model.get("beside", {})
        self.slowed = model.get("slowed", (1.0,))
        self.requests = []

    def run(self, request, *, patience_s):
        assert patience_s > 0
        self.requests.append(request)
        batch = request.batches[0] if request.batches else self.batch
        needed = self.fixed_bytes + self.bytes_per_sample * batch
        if needed > self.limit_bytes and not request.unlimited:
            failed = told(
                seen(error=error("DefaultCPUAllocator: can't allocate memory: you tried"), loaders=()), status=1
            )
            return trial_of(request, failed, warm_steps=0)
        workers = request.feed.num_workers if request.feed is not None else 0
        make_s, train_s = self.sample_s * batch, self.fixed_s + self.step_s * batch
        if request.variant.wait_policy == "passive":
            train_s /= self.asleep
        count = max(request.steps, 4)
        trains_s = [train_s * self.slowed[place % len(self.slowed)] for place in range(count)]
        wait = make_s if workers == 0 else max(0.0, make_s / workers - sum(trains_s) / count)
        event = steps([one_s + wait for one_s in trains_s], [wait] * count, samples=batch, peak_bytes=needed)
        built = loader(batch_size=self.batch if self.eats else batch)
        trial = trial_of(request, told(seen(event, loaders=[built])), warm_steps=0)
        measured = {**trial.measured, **self.beside}
        return trial.model_copy(update={"refused": dict(self.refuses), "measured": measured})

    def asked(self, kind):
        return [request for request in self.requests if request.kind == kind]


def session_of(model, *, built=None, journal=None, command=COMMAND, **changes):
    """A session over a pretended script, looked at as `model` has it."""
    workers = 0 if built is None else built.num_workers
    trial = model.run(TrialRequest(kind="look", batches=(), steps=24), patience_s=1.0)
    model.requests.clear()
    wait, step = trial.legs["wait_s"][0], trial.legs["step_s"][0]
    if workers:
        wait, step = 0.0, step - wait
    event = steps([step] * 24, [wait] * 24, samples=model.batch, peak_bytes=trial.points[0].peak_bytes)
    look = look_at([seen(event, loaders=[built or loader(batch_size=model.batch)])], warm_steps=2, start_s=2.0)
    known = {"launches": model, "reference": model.batch, "limit_bytes": model.limit_bytes}
    known = {name: changes.pop(name, value) for name, value in known.items()}
    runner = CommandRunner(command=command, look=look, **known)
    return Session(runner=runner, journal=journal or Journal(None), progress=SILENT, **{"budget_s": 3600.0, **changes})


def fed(session, **asked):
    """What the search for the loader found."""
    found = ScriptFindings(look=session.runner.look)
    tune_loader(session, found, **asked)
    return found


def sized(session, **asked):
    """What the search for the batch found."""
    found = ScriptFindings(look=session.runner.look)
    size_batch(session, found, **asked)
    return found


def searched(**changes):
    """The findings of a whole search over a pretended script, and its session."""
    asked = SearchOptions(command=COMMAND.words, **changes)
    session = session_of(Pretended())
    found = ScriptFindings(look=session.runner.look, lever="loader")
    found.defaults.append(session.run(TrialRequest(kind="look", batches=(), steps=24)))
    run_stages(session, asked, found)
    return asked, found, session


def result_of(asked, found, session, **changes):
    """The result as the door returns it, with a profile unless it only looked."""
    context = ScriptContext(
        command=Command(asked.command), hardware=Hardware(device="cpu", name="A CPU", torch="2.9.1"),
        limit_bytes=256 << 20, seconds=60.0, launches=21,
    )  # fmt: skip
    profile = make_profile(context, found, session.journal.trials)
    known = {
        "options": asked, "command": Command(asked.command), "findings": found, "launches": 21, "seconds": 60.0,
        "isolation": "trials run in place",
        "profile": profile, "stored": Merged(profile=profile, path=Path("/profiles/p.yaml")), "limit_bytes": 256 << 20,
    }  # fmt: skip
    return ScriptResult(**{**known, **changes})
