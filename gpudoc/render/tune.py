"""The output of a search: its gain, the settings next to the default's, and the command to train."""

from __future__ import annotations

import shlex

from gpudoc.facts.redact import private
from gpudoc.profile import store
from gpudoc.profile.model import Loader, LossDeviation, Settings
from gpudoc.render import frame
from gpudoc.render.console import print_json
from gpudoc.render.scaling import as_lines
from gpudoc.render.trials import trial_lines
from gpudoc.render.verdict import first_line
from gpudoc.tune.model.losses import percent
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.record import about_threads
from gpudoc.tune.run import TuneResult, document
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.search.scaling import ScalingResult
from gpudoc.units import MIB, format_bytes, format_count, format_seconds

# the names of the settings as train shows them, the most important first
_NAMES = {
    "micro_batch": "micro batch",
    "precision": "precision",
    "num_workers": "loader workers",
    "activation_checkpointing": "activation checkpointing",
    "compile": "compile",
    "compile_mode": "compile mode",
    "matmul_precision": "matmul precision",
    "channels_last": "channels last",
    "cudnn_benchmark": "cudnn.benchmark",
    "fused": "fused optimizer",
    "foreach": "foreach optimizer",
    "optimizer_state": "optimizer state",
    "allocator": "allocator",
    "wait_policy": "waiting threads",
    "prefetch_factor": "prefetch factor",
    "pin_memory": "pinned memory",
    "persistent_workers": "persistent workers",
}
_ALWAYS = ("micro_batch", "precision", "num_workers")
_OF_WORKERS = ("prefetch_factor", "pin_memory", "persistent_workers")


def show(result: TuneResult | ScalingResult, *, as_json: bool, plain: bool, verbose: bool, drawn: bool = False) -> None:
    """Print the result on stdout as one JSON document or as a screen; `drawn` if it is on a page too."""
    if as_json:
        print_json(private(document(result)))
        return
    text = as_text(result, verbose=verbose, drawn=drawn, width=frame.form(plain, piped=frame.WIDE).width)
    frame.show(text + "\n", plain=plain)


def as_text(
    result: TuneResult | ScalingResult, *, verbose: bool = False, drawn: bool = False, width: int = frame.WIDE
) -> str:
    """The screen: the gain, the settings, the next command; also every reason and every trial if `verbose`."""
    if isinstance(result, ScalingResult):
        what = "interrupted; the results so far" if result.interrupted else "measured"
        head = f"{what}: {result.num_trials} trials in {format_seconds(result.seconds)}, no profile written"
        return "\n".join([head, "", *as_lines(result.scaling, width)])
    found = result.findings
    is_sure = found.gain.is_sure if found.asked_for_speed else found.largest is not None and found.largest.is_proved
    mark = frame.PASSED if is_sure else frame.UNCHECKED
    lines = frame.fold(f"{mark} {headline(result)}", width)
    noise = noise_of(result.journal.trials)
    if noise is not None:
        again = "Run the same command again when the machine is idle to measure those again."
        lines += frame.fold(f"{frame.MARK['warning']} {str(noise)[0].upper()}{str(noise)[1:]}. {again}", width)
        for sentence in about_threads(result.profile.hardware.device, noise, result.findings.tried):
            lines += frame.fold(f"{frame.MARK['warning']} {sentence}", width)
    for sentence in result.stored.kept:
        lines += frame.fold(f"{sentence[0].upper()}{sentence[1:]}.", width)
    lines += ["", *_settings(result), *_memory(result, width), "", *_levers(result, width)]
    made = result.profile.made
    assert made is not None
    spent = f"{format_count(made.trials, 'trial')} in {format_seconds(made.seconds)} on {result.profile.hardware.title}"
    if verbose:
        lines += [f"settings, and why ({spent})"]
        for sentence in result.profile.why:
            lines += frame.fold(f"  {sentence}", width, indent="    ")
        lines += ["", f"every trial, {_how(result)}", *trial_lines(result.profile.evidence.trials, "trial")]
    else:
        way = "--verbose" if drawn else "--verbose or --html FILE"
        lines += frame.fold(f"{spent}; why each setting, and every trial: {way}", width)
    if result.scaling is not None:
        lines += ["", *as_lines(result.scaling, width)]
    return "\n".join([*lines, "", f"profile  {frame.short_path(result.path)}", f"next     {train_command(result)}"])


def train_command(result: TuneResult) -> str:
    """The command to train with this profile; it names the file only if train would not find it by itself."""
    context = result.context
    words = ["gpudoc", "train", "--model", _source(result)]
    if result.path.parent.resolve() != store.folder_to_write().resolve():
        words += ["--profile", str(result.path)]
    if context.ranks > 1:
        # every GPU is the default on GPUs, one process on a CPU
        words += ["--gpus", str(context.ranks)]
    if context.user_limit_bytes is not None:
        words += ["--memory-limit", f"{context.user_limit_bytes // MIB}MiB"]
    return shlex.join(words)


def headline(result: TuneResult) -> str:
    """The gain of the search, with its uncertainty; one speed, measured with real data."""
    begun = "Interrupted; this is the best so far. " if result.interrupted else ""
    return begun + _gained(result)


def _gained(result: TuneResult) -> str:
    found = result.findings
    if not found.asked_for_speed:
        largest = found.largest
        told = "The largest batch was not reached" if largest is None else f"The largest batch is {largest.batch:,}"
        return f"{told}; you asked only for that, so its speed was not compared with your default."
    ranks = result.context.ranks
    told = (f" of {ranks} ranks together" if ranks > 1 else "") + " with your data"
    verdict = found.verdict.after_interrupt() if result.interrupted else found.verdict
    return first_line(verdict, found.gain, default="your default", told=told, command=tune_command(result))


def tune_command(result: TuneResult) -> tuple[str, ...]:
    """The command of this search, to type again with another budget."""
    context, words = result.context, ["gpudoc", "tune", "--model", _source(result)]
    if context.asked:
        words += context.asked
    return tuple(words)


def _source(result: TuneResult) -> str:
    config = result.context.config
    return config.name if config.builtin else result.context.source or f"{config.name}.yaml"


def _settings(result: TuneResult) -> list[str]:
    """The settings that matter or differ from the default's, with the default's next to them."""
    before = result.profile.evidence.default
    default = _flat(before.settings) if before is not None and before.settings is not None else {}
    chosen = _flat(result.stored.profile.settings)
    rows = []
    for name, label in _NAMES.items():
        # without workers the loader's other settings do nothing
        if name in _OF_WORKERS and not chosen["num_workers"]:
            continue
        differs = name in default and default[name] != chosen[name]
        if differs or name in _ALWAYS:
            rows.append((label, _say(chosen[name]), f"(default {_say(default[name])})" if differs else ""))
    wide = max(len(label) for label, _, _ in rows)
    values = max(len(value) for _, value, _ in rows)
    return [f"  {label:{wide}}  {value:>{values}}  {note}".rstrip() for label, value, note in rows]


def _flat(settings: Settings) -> dict[str, object]:
    plain = settings.model_dump()
    loader = plain.pop("loader", None) or Loader().model_dump()
    return {**plain, **loader}


def _say(value: object) -> str:
    return (
        {True: "on", False: "off"}[value]
        if isinstance(value, bool)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _memory(result: TuneResult, width: int) -> list[str]:
    """The largest batch, how that is known, and its memory against the limit."""
    largest = result.findings.largest
    if largest is None:
        return []
    peak = "" if largest.line is None else f", {format_bytes(largest.line.at(largest.batch))}"
    told = f"  largest batch {largest.batch:,}{peak} of {format_bytes(largest.limit_bytes)}: {_how_sure(largest)}"
    ceiling = result.profile.why[0].partition("; a larger one would exceed ")[2] if result.profile.why else ""
    lines = frame.fold(told, width, indent="    ")
    return [*lines, *(frame.fold(f"  the micro batch is at {ceiling}", width, indent="    ") if ceiling else [])]


def _levers(result: TuneResult, width: int) -> list[str]:
    """The tried levers: speed against the best before, how far the losses differ and may differ, and the outcome.

    Ends with an empty line; no lines if none was tried.
    """
    rows = result.profile.evidence.variants
    if not rows:
        return []
    wide = max(len(row.name) for row in rows)
    lines = [f"  {'lever, on top of what was kept':{wide}}   speed  losses differ  allowed"]
    for row in rows:
        if row.times is None:
            lines += frame.fold(f"  {row.why}", width, indent="    ")
            continue
        differ, allowed = ("not compared", "") if row.losses is None else losses_in_words(row.losses)
        kept = "kept" if row.kept else f"not used: {row.rejected or 'see --verbose'}"
        line = f"  {row.name:{wide}}  {f'x {row.times:.2f}':>6}  {differ:>13}  {allowed:>7}"
        lines += [f"{line}  {kept}"] if len(line) + 2 + len(kept) <= width else [line, f"    {kept}"]
    return [*lines, ""]


def losses_in_words(found: LossDeviation) -> tuple[str, str]:
    """How far a variant's losses differ from the reference's, and how far they may differ."""
    differ = "not finite" if found.difference is None else percent(found.difference)
    return differ, percent(found.bound)


def _how_sure(largest: Largest) -> str:
    if not largest.complete:
        return f"it ran, and more may fit ({largest.predicted:,} predicted)" if largest.predicted else "it ran"
    if largest.fails_at is not None and largest.batch != largest.cap:
        return f"it ran, and {largest.fails_at:,} did not fit"
    return "it ran, and a larger one would not help"


def _how(result: TuneResult) -> str:
    """How the processes of the trials were started."""
    is_forked = all(trial.how == "fork" for trial in result.journal.trials)
    return (
        "forked from a process that had already imported your code"
        if is_forked
        else "in processes that each imported your code"
    )
