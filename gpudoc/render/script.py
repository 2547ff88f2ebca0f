"""The output of a search over a script: the unchanged script, the result, the line to write, the command to run."""

from __future__ import annotations

import shlex

from gpudoc.facts.redact import private
from gpudoc.process.openmp import in_shell, missing_for_any
from gpudoc.render.console import print_json, stdout
from gpudoc.render.frame import short_path
from gpudoc.render.trials import loader_lines, trial_lines
from gpudoc.render.verdict import first_line
from gpudoc.script.advice import about_order, by_option, describe_loader
from gpudoc.script.look import ScriptLook
from gpudoc.script.remember import BATCH
from gpudoc.script.search import ScriptResult, document
from gpudoc.script.trial import FIRST_BATCH
from gpudoc.units import format_bytes, format_rate, format_seconds

_COPIED = ("profile  ", "next     ", "  export ")


def show(result: ScriptResult, *, as_json: bool, plain: bool, verbose: bool) -> None:
    """Print the result on stdout, as one JSON document or as a screen."""
    if as_json:
        print_json(private(document(result)))
        return
    out = stdout(plain)
    for line in as_text(result, verbose=verbose).splitlines():
        # a line to copy from a terminal stays in one piece
        out.print(line, soft_wrap=line.startswith(_COPIED) or not out.is_terminal)


def as_text(result: ScriptResult, *, verbose: bool = False) -> str:
    """The screen; with every launch if `verbose`."""
    lines = [headline(result), *([] if result.profile is None else [_spent(result)]), ""]
    lines += [f"as it is: {result.command}", *look_lines(result.look)]
    if result.profile is None:
        return "\n".join([*lines, *_advice(result), "", f"next     {tune_command(result)}"])
    reasons = result.profile.why
    assert result.stored is not None
    lines[2:2] = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in result.stored.kept]
    if result.profile.evidence.disturbed_trials:
        lines.insert(2, f"! {reasons[0]}; run the same command again when the machine is idle to measure those again")
        reasons = reasons[1:]
    found = _found(result)
    if found:
        lines += ["", "found", *found]
    if reasons:
        lines += ["", "why", *(f"  {sentence}" for sentence in reasons)]
    lines += _to_write(result)
    lines += _advice(result)
    if verbose:
        evidence = result.profile.evidence
        lines += ["", "every launch", *trial_lines(evidence.trials, "launch"), *loader_lines(evidence.loader)]
    return "\n".join([*lines, "", f"profile  {short_path(result.stored.path)}", f"next     {train_command(result)}"])


def headline(result: ScriptResult) -> str:
    """The gain of the search over the unchanged script, with its uncertainty, in one line."""
    if result.profile is None:
        return f"looked: {_spent(result)}"
    begun = "Interrupted; this is the best so far. " if result.interrupted else ""
    found = result.findings
    verdict = found.verdict.after_interrupt() if result.interrupted else found.verdict
    asked = ("gpudoc", "tune", *result.options.asked, "--", *result.command.words)
    unit = "steps/s" if result.look.samples_per_s is None else "samples/s"
    return begun + first_line(verdict, found.gain, default="the script as it is", told="", command=asked, unit=unit)


def _spent(result: ScriptResult) -> str:
    return f"{result.launches} launch{'es' if result.launches != 1 else ''} in {format_seconds(result.seconds)}"


def look_lines(look: ScriptLook) -> list[str]:
    """The unchanged script: its loaders, its step, its memory, its device and precision."""
    lines = [f"  {describe_loader(loader, look)}" for loader in look.loaders] or ["  no DataLoader was built"]
    low, high = look.step_interval_s
    rate = "" if look.samples_per_s is None else f", {format_rate(look.samples_per_s, 'samples/s')}"
    of = f" of {look.ranks} ranks together" if look.ranks > 1 and rate else ""
    lines.append(
        f"  step {format_seconds(look.step_s)} ({format_seconds(low)} to {format_seconds(high)} over {look.steps} "
        f"steps){rate}{of}, {look.wait_share:.0%} of it waiting for data"
    )
    if look.micro_batches > 1:
        lines.append(f"  an optimizer step takes {look.micro_batches} batches")
    device = look.device_name or look.device
    tf32 = "" if not look.on_gpu or look.tf32 is None else f", TF32 {'on' if look.tf32 else 'off'}"
    ranks = f", {look.ranks} ranks" if look.ranks > 1 else ""
    lines.append(f"  {device}{ranks}, {look.precision}{tf32}, torch {look.torch}")
    if look.peak_bytes is not None:
        kind = "reserved by torch's allocator" if look.on_gpu else "private memory"
        each = " of a rank" if look.ranks > 1 else ""
        lines.append(f"  peak {format_bytes(look.peak_bytes)}{each}, {kind}; first step after {_first(look)}")
    if look.evaluates:
        lines.append("  it evaluates between its steps; those steps were left out")
    return lines


def _first(look: ScriptLook) -> str:
    return format_seconds(look.start_s)


def _found(result: ScriptResult) -> list[str]:
    found, lines = result.findings, []
    largest = found.largest
    if largest is not None:
        proof = largest.proof
        if not largest.is_proved and largest.predicted is not None:
            proof += f"; {largest.predicted:,} predicted"
        peak = "" if largest.line is None else f", peak {format_bytes(largest.line.at(largest.batch))}"
        lines.append(f"  largest batch {largest.batch:>6,}  {proof}{peak} of {format_bytes(largest.limit_bytes)}")
    if found.batch is not None:
        own = found.look.batch
        given = "" if own is None else f" (the script's own: {own})"
        lines.append(f"  offered batch {found.batch:>6,}{given}")
    if found.feed is not None:
        feed = found.feed
        ahead = f" x {feed.prefetch_factor} batches" if feed.num_workers else ""
        lines.append(f"  loader        {feed.num_workers:>6,}  workers{ahead}")
    if found.variant.wait_policy == "passive":
        lines.append(f"  threads       {'sleep':>6}  while they wait for each other")
    return lines


def _to_write(result: ScriptResult) -> list[str]:
    lines: list[str] = []
    if result.lines:
        lines += ["", "to write into the script (or run it unchanged with the profile)"]
        lines += [f"  {line}" for line in result.lines]
        order = about_order(result.look, result.findings.feed)
        lines += [f"  {order}"] if order else []
    waits = missing_for_any(result.findings.variant.wait_policy, {})
    if waits:
        lines += ["", "to set when you start it (or run it with the profile)", f"  export {in_shell(waits)}"]
    if result.offered:
        lines += ["", "for the offered batch, if you want to train with it"]
        lines += [f"  {line}" for line in result.offered]
    option = by_option(result.look, result.findings.feed)
    if option:
        lines.append(f"  or, if it reads TrainingArguments from its command line: {option}")
    return lines


def _advice(result: ScriptResult) -> list[str]:
    return ["", "noticed, but not set", *(f"  {sentence}" for sentence in result.advice)] if result.advice else []


def train_command(result: ScriptResult) -> str:
    """The command that runs the script with the found settings."""
    command, batch = result.command, result.findings.batch
    allow, words = "", command.words
    if command.takes_batch:
        # the profile is found by the words around the number, so any number works
        words = command.at(batch or result.look.batch or FIRST_BATCH)
    elif batch not in (None, result.look.batch) and "batch" in result.options.allowed:
        allow = " --allow batch"
    profile = "auto" if result.options.out is None else str(result.options.out)
    return f"gpudoc train --profile {profile}{allow} -- {shlex.join(words)}".replace(f"'{BATCH}'", BATCH)


def tune_command(result: ScriptResult) -> str:
    """The command that tunes the examined script."""
    return f"gpudoc tune -- {result.command}"
