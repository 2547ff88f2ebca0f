"""What a search says: the three batches, the settings with a reason each, and the command to train."""

from __future__ import annotations

from gpudoc.render.console import print_json, stdout
from gpudoc.render.scaling import as_lines
from gpudoc.tune.run import Result, document
from gpudoc.tune.search.scaling import ScalingResult
from gpudoc.units import format_bytes, format_rate, format_seconds


def show(result: Result | ScalingResult, *, as_json: bool, plain: bool, verbose: bool) -> None:
    """The result on stdout, as one JSON document or as a screen."""
    if as_json:
        print_json(document(result))
        return
    stdout(plain).print(as_text(result, verbose=verbose))


def as_text(result: Result | ScalingResult, *, verbose: bool = False) -> str:
    """The screen: batches, settings with their reasons, where the profile is; every trial when `verbose`."""
    if isinstance(result, ScalingResult):
        what = "interrupted; what was measured" if result.interrupted else "measured"
        head = f"{what}: {result.num_trials} trials in {format_seconds(result.seconds)}, no profile written"
        return "\n".join([head, "", *as_lines(result.scaling)])
    lines = [headline(result), "", *_batches(result), "", "settings, and why"]
    lines += [f"  {sentence}" for sentence in result.profile.why]
    if verbose:
        lines += ["", f"every trial, {_how(result)}", *_trials(result)]
    if result.scaling is not None:
        lines += ["", *as_lines(result.scaling)]
    lines += ["", f"profile  {result.path}", f"next     {train_command(result)}"]
    return "\n".join(lines)


def train_command(result: Result) -> str:
    """What to type to train with this profile."""
    config = result.context.config
    source = config.name if config.builtin else f"{config.name}.yaml"
    ranks = result.context.ranks
    # every GPU is the default on GPUs, one process on a CPU
    gpus = f" --gpus {ranks}" if ranks > 1 else ""
    return f"gpudoc train --profile {result.path} --model {source}{gpus}"


def headline(result: Result) -> str:
    """How many trials, how long, and the gain over the default, in one line."""
    made = result.profile.made
    assert made is not None
    what = "interrupted; the best so far" if result.interrupted else "tuned"
    ratio = result.profile.evidence.speedup_over_default
    gain = "" if ratio is None else f", {ratio:.2f} times the default's speed"
    return f"{what}: {made.trials} trials in {format_seconds(made.seconds)}{gain}"


def _batches(result: Result) -> list[str]:
    found, evidence = result.findings, result.profile.evidence
    lines = []
    largest = found.largest
    if largest is not None:
        peak = "" if largest.line is None else f", peak {format_bytes(largest.line.at(largest.batch))}"
        proof = "proved" if largest.is_proved else f"run, not proved; {largest.predicted} predicted"
        lines.append(f"  largest  {largest.batch:>7,}  {proof}{peak} of {format_bytes(largest.limit_bytes)}")
    if evidence.fastest_batch is not None:
        lines.append(f"  fastest  {evidence.fastest_batch:>7,}  {_rate_at(result, evidence.fastest_batch)}")
    chosen = result.profile.settings.micro_batch
    lines.append(f"  chosen   {chosen:>7,}  {_rate_at(result, chosen)}")
    return lines


def _rate_at(result: Result, batch: int) -> str:
    rates = [p.samples_per_s for p in result.findings.speeds if p.batch == batch and p.samples_per_s]
    ranks = result.context.ranks
    unit = "samples/s" if ranks == 1 else f"samples/s of {ranks} ranks together"
    return format_rate(rates[-1] * ranks, unit) if rates else ""


def _how(result: Result) -> str:
    """How the processes of the trials were started."""
    is_forked = all(trial.how == "fork" for trial in result.journal.trials)
    return "forked from a process that had imported" if is_forked else "in processes that imported for themselves"


def _trials(result: Result) -> list[str]:
    lines = ["  kind        batch  end              peak         samples/s   trial"]
    for row in result.profile.evidence.trials:
        peak = "" if row.peak_bytes is None else format_bytes(row.peak_bytes)
        rate = "" if row.samples_per_s is None else f"{row.samples_per_s:,.4g}"
        lines.append(
            f"  {row.kind:<10} {row.batch:>6}  {row.end:<15}  {peak:<11}  {rate:>9}  {format_seconds(row.seconds):>8}"
        )
    return lines
