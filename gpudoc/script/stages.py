"""The stages of a search over a script, in the order that gives most for the time; fills in the findings as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.script.batch import check_lever, size_batch
from gpudoc.script.command import Command
from gpudoc.script.findings import Findings, gain, is_own
from gpudoc.script.loader import tune_loader
from gpudoc.script.options import PARTS, Options
from gpudoc.script.session import Session
from gpudoc.script.threads import try_sleeping
from gpudoc.tune.search.trying import give_up
from gpudoc.tune.trial.messages import Request, Trial, Variant
from gpudoc.units import format_seconds

_LOADER_SHARE = 0.45
_PAIRS = 2
_PAIR_STEPS, _PAIR_S = 24, 3.0
# launches that each part usually takes, for what is said before they begin
_LAUNCHES = {"loader": 10, "batch": 14}


def planned_launches(options: Options) -> dict[str, int]:
    """About how many launches each part will take, the look and the closing comparison among them."""
    parts = {name: count for name, count in _LAUNCHES.items() if name in options.parts}
    return {"look": 1, **parts, **({"compare": 2 * _PAIRS - 1} if parts else {})}


def say_plan(options: Options, launch_s: float | None) -> str:
    """The plan in one line; with minutes once a launch was timed."""
    planned = planned_launches(options)
    num = sum(planned.values())
    words = {
        "look": "to look at it",
        "loader": "for the loader",
        "batch": "for the batch",
        "compare": "to compare with trial 0",
    }
    parts = ", ".join(f"{'about ' if count > 3 else ''}{count} {words[name]}" for name, count in planned.items())
    most = format_seconds(options.budget_s)
    if launch_s is None:
        launches = "1 launch" if num == 1 else f"{num} launches"
        return f"plan: {launches} of the script ({parts}), each ended after a few steps; at most {most}"
    rest_s = min(options.budget_s, (num - 1) * launch_s)
    return (
        f"a launch takes about {format_seconds(launch_s)}: about {format_seconds(rest_s)} to go, at most {most} in all"
    )


def run_stages(session: Session, options: Options, found: Findings) -> None:
    """How threads wait, loader, batch, and the comparison with trial 0; what is found is in `found` at any moment."""
    session.reserved_s = (2 * _PAIRS - 1) * (session.launch_s + _PAIR_S)
    if options.goal == "throughput" and options.parts == frozenset(PARTS):
        try_sleeping(session, found)
    if "loader" in options.parts:
        share = _LOADER_SHARE if "batch" in options.parts else 1.0
        found.fed = tune_loader(session, seconds=max(0.0, share * session.free_s))
        if found.fed.feed is not None and is_own(found.fed.feed, found.look):
            found.notes.append("the script's own loader settings are the best that were found")
        session.feed = found.fed.feed
    if "batch" in options.parts:
        _size(session, options, found)
    _compare(session, options, found)


def _size(session: Session, options: Options, found: Findings) -> None:
    if found.lever == "none":
        session.say(f"batch: not searched: {found.why_no_lever}")
        return
    if session.limit_bytes is None:
        found.why_no_lever = "how much memory the device has could not be read; say it: --memory-limit 8GiB"
        return
    if session.free_s < 2 * session.launch_s:
        found.why_no_lever = "no time was left; a longer --budget"
        return
    training = found.look.training
    place = training.place if training is not None else "the loader"
    session.check = lambda trials: _check_batch(options.command, trials, place)
    try:
        found.sized = size_batch(session, goal=options.goal, max_batch=options.max_batch)
    except _NoLeverError as problem:
        found.lever, found.why_no_lever = "none", problem.message
        session.say(f"batch: {problem.message}")
    except GpudocError as problem:
        if found.feed is None or problem.exit_code is ExitCode.NOT_DONE:
            raise
        # what was found for the loader is kept
        found.notes.append(f"batch not found: {problem.message}")
        session.say(f"batch: {problem.message}")
    finally:
        session.check = None


class _NoLeverError(GpudocError):
    """The script does not let its batch be set from outside."""


def _check_batch(command: Command, trials: Sequence[Trial], place: str) -> None:
    refused = next((trial.refused["batch_size"] for trial in trials if "batch_size" in trial.refused), None)
    if refused is not None:
        raise _NoLeverError(f"{place}: the batch size stays: {refused}", exit_code=ExitCode.BAD_ANSWER)
    if command.takes_batch:
        given = [(t.request.batches[0], int(t.measured.get("loader_batch", 0)) or None) for t in trials]
        check_lever(str(command), given, place)


def _compare(session: Session, options: Options, found: Findings) -> None:
    """Trial 0 and the found settings in turns; settings that lose are not kept."""
    feed = found.feed
    takes_batch = found.lever == "flag" or "batch" in options.allow
    batch = found.batch if takes_batch and found.batch != found.look.batch else None
    changed = batch is not None or found.variant != Variant() or (feed is not None and not is_own(feed, found.look))
    if not changed:
        # a batch that is only offered is no part of what was compared
        found.unchanged = found.batch in (None, found.look.batch)
        return
    session.reserved_s = 0.0
    for turn in range(_PAIRS):
        for kind in ("joint", "default") if turn % 2 == 0 else ("default", "joint"):
            # the look is the first default; one launch of what was found is needed whatever the time
            if found.joints and session.launch_s > session.free_s:
                break
            request = Request(
                kind=kind,
                batches=(batch,) if batch is not None and kind == "joint" else (),
                variant=found.variant if kind == "joint" else Variant(),
                feed=feed if kind == "joint" else None,
                steps=_PAIR_STEPS,
                seconds_per_batch=_PAIR_S,
                repeat=turn,
            )
            why = "the found settings" if kind == "joint" else "the script as it is"
            trial = session.run(request, f"comparing: {why}, once more" if turn else f"comparing: {why}")
            (found.joints if kind == "joint" else found.defaults).append(trial)
    _judge(found, batch, is_sure=options.goal == "throughput")


def _judge(found: Findings, batch: int | None, *, is_sure: bool) -> None:
    """Keep trial 0's settings where the found ones fail or lose; `batch` is the one that was part of them.

    With `is_sure` they lose as well where they are not faster beyond what the launches differ by.
    """
    failed = next((trial for trial in found.joints if not trial.fits), None)
    gained = gain(found.defaults, found.joints)
    if failed is not None:
        reason = f"the found ones failed in the end ({failed.detail[:120] or failed.end.value})"
    elif gained is not None and (gained.ratio < 1.0 or (is_sure and gained.low <= 1.0)):
        reason = f"the found ones reached {gained.text} their speed in the end"
    else:
        return
    give_up(found, reason)
    found.kept_default = f"the script's own settings are kept: {reason}"
    found.unchanged = True
    if batch is not None and found.sized is not None:
        found.sized = replace(found.sized, choice=None)
