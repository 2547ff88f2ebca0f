"""The stages of a search over a script, in the order that gains most per time; fills in the findings as it goes."""

from __future__ import annotations

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.script.batch import size_batch
from gpudoc.script.findings import ScriptFindings, is_own
from gpudoc.script.loader import tune_loader, why_kept
from gpudoc.script.runner import CommandSession, NoLeverError
from gpudoc.script.threads import try_sleeping
from gpudoc.tune.model.gain import times
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.search.comparison import Side, compare_in_turns, loses
from gpudoc.tune.search.levers import give_up
from gpudoc.tune.trial.deadline import TimeUpError
from gpudoc.tune.trial.messages import TrialRequest, Variant
from gpudoc.units import format_seconds

_LOADER_SHARE = 0.45
# settings whose effect a launch does not show if it ends within its first epoch
_AT_EPOCHS = {"persistent_workers": False}
_PAIRS = 2
_CLOSING_SHARE = 0.3
_PAIR_STEPS, _PAIR_S = 24, 3.0
# launches that each part usually takes, for the plan
_LAUNCHES = {"loader": 10, "batch": 14}


def planned_launches(options: SearchOptions) -> dict[str, int]:
    """About how many launches each part will take, including the look and the closing comparison."""
    parts = {name: count for name, count in _LAUNCHES.items() if name in options.parts}
    return {"look": 1, **parts, **({"compare": 2 * _PAIRS - 1} if parts else {})}


def say_plan(options: SearchOptions, launch_s: float | None) -> str:
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


def run_stages(session: CommandSession, options: SearchOptions, found: ScriptFindings) -> None:
    """Search how threads wait, loader and batch, and compare with trial 0; `found` holds all results at any moment."""
    found.needed_s = sum(planned_launches(options).values()) * session.runner.overhead_s
    try:
        _run_stages(session, options, found)
    except KeyboardInterrupt:
        if found.feed is not None and not found.joints and not is_own(found.feed, found.look):
            _take_from_the_search(session, found, "it was interrupted before the final comparison")
            _judge(found, is_part=False, is_sure=options.goal == "throughput")
        raise
    finally:
        found.feed_trials = tuple(trial for trial in session.journal.trials if trial.request.kind == "loader")


def _run_stages(session: CommandSession, options: SearchOptions, found: ScriptFindings) -> None:
    # the closing comparison needs one launch; more launches make it reliable
    session.reserved_s = min(
        (2 * _PAIRS - 1) * (session.runner.overhead_s + _PAIR_S),
        max(session.runner.overhead_s, _CLOSING_SHARE * session.free_s),
    )
    if options.goal == "throughput" and "loader" in options.parts:
        try_sleeping(session, found)
    if "loader" in options.parts:
        share = _LOADER_SHARE if "batch" in options.parts else 1.0
        tune_loader(session, found, seconds=max(0.0, share * session.free_s))
        kept = why_kept(session.runner.look)
        if options.parts == {"loader"} and kept and not found.tried:
            found.nothing_to_gain, found.needed_s = kept, None
        if found.feed is not None and is_own(found.feed, found.look):
            found.notes.append("the script's own loader settings are the best found")
        session.feed = found.feed
    if "batch" in options.parts:
        _size(session, options, found)
    _compare(session, options, found)


def _size(session: CommandSession, options: SearchOptions, found: ScriptFindings) -> None:
    if found.lever == "none":
        session.say(f"batch: not searched: {found.why_no_lever}")
        return
    if session.runner.limit_bytes is None:
        found.why_no_lever = "the device's memory size could not be read; set it: --memory-limit 8GiB"
        return
    if session.free_s < 2 * session.runner.overhead_s:
        found.why_no_lever = "no time was left"
        return
    try:
        size_batch(session, found, goal=options.goal, max_batch=options.max_batch)
    except NoLeverError as problem:
        found.lever, found.why_no_lever = "none", problem.message
        session.say(f"batch: {problem.message}")
    except TimeUpError as problem:
        found.why_no_lever = problem.message
    except GpudocError as problem:
        if found.feed is None or problem.exit_code is ExitCode.NOT_DONE:
            raise
        # the loader's settings are kept
        found.notes.append(f"batch not found: {problem.message}")
        session.say(f"batch: {problem.message}")


def _compare(session: CommandSession, options: SearchOptions, found: ScriptFindings) -> None:
    """Compare trial 0 and the found settings in turns; settings that lose are not kept."""
    feed = found.feed
    takes_batch = found.lever == "flag" or "batch" in options.allowed
    is_other = found.batch not in (None, found.look.batch)
    batch = found.batch if takes_batch and is_other else None
    changed = batch is not None or found.variant != Variant() or (feed is not None and not is_own(feed, found.look))
    if is_other and batch is None:
        found.nothing_to_gain = (
            "a different batch changes the training, so it is only offered (--allow batch compares it)"
        )
    if not changed:
        # a batch that is only offered was not compared
        found.kept_default = not is_other
        return
    session.reserved_s = 0.0

    def ask(side: Side, turn: int) -> TrialRequest:
        request = TrialRequest(kind=side, batches=(), steps=_PAIR_STEPS, seconds_per_batch=_PAIR_S, repeat=turn)
        if side == "default":
            return request
        return request.model_copy(
            update={"batches": () if batch is None else (batch,), "variant": found.variant, "feed": feed}
        )

    compare_in_turns(session, found, (("joint", 0), ("default", 0), ("default", 1), ("joint", 1)), ask)
    if not found.joints and batch is None:
        _take_from_the_search(session, found, "no time was left for a final comparison")
    _judge(found, is_part=batch is not None, is_sure=options.goal == "throughput")


def _take_from_the_search(session: CommandSession, found: ScriptFindings, why: str) -> None:
    """Take the gain from the search's launches of the found and of the script's own loader, without a comparison."""
    if found.feed is None:
        return
    wanted = found.feed.model_copy(update=_AT_EPOCHS)
    for trial in session.journal.trials:
        feed, request = trial.request.feed, trial.request
        if feed is None or request.kind != "loader" or not trial.fits:
            continue
        if feed.model_copy(update=_AT_EPOCHS) == wanted and request.variant == found.variant:
            found.joints.append(trial)
        elif is_own(feed, found.look) and request.variant == Variant():
            found.defaults.append(trial)
    if found.joints:
        found.notes.append(f"{why}: the gain is from the search's own launches")


def _judge(found: ScriptFindings, *, is_part: bool, is_sure: bool) -> None:
    """Keep trial 0's settings if the found ones fail or lose; the batch is given up too if it `is_part` of them.

    With `is_sure` they also lose if their gain is not larger than the noise between launches.
    """
    failed, ratio = found.failed_with_data, found.gain.ratio
    if failed:
        reason = f"the settings found failed in the end ({failed})"
    elif ratio is not None and loses(found.gain, is_sure=is_sure):
        reason = f"the settings found reached {times(ratio)} their speed in the end"
    else:
        return
    give_up(found, reason)
    found.why_kept = f"the script's own settings are kept: {reason}"
    found.kept_default = True
    found.variant, found.feed = Variant(), None
    if is_part:
        found.choice = None
