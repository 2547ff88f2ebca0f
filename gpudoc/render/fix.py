"""The output of `fix`: the cause with its line, the change and its proof, side effects, and changes not kept."""

from __future__ import annotations

import shlex
from pathlib import Path

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.facts.redact import private
from gpudoc.fix.document import document
from gpudoc.fix.model import HotLine, name_of
from gpudoc.fix.proof import FixProof, describe
from gpudoc.fix.result import FixResult
from gpudoc.reading import UnreadableError, read_bytes
from gpudoc.render.console import print_json, stdout
from gpudoc.shell import quote_path
from gpudoc.units import format_count, format_seconds

_MOST_SHOWN = 8
# limits for the list of lines where a step spends its time: how many, the least share, the longest source
_MOST_LINES, _LEAST_SHARE, _LONGEST = 3, 0.05, 80
_TITLES = {
    "anomaly-off": "Anomaly detection is on",
    "evaluation-no-grad": "An evaluation builds graphs that nothing uses",
    "detach-sum": "A sum or list keeps the graph of each step",
    "retain-graph": "Each backward keeps a graph that is never used again",
    "untrained-part": "Gradients of weights that nothing trains are computed",
    "untrained-network": "A backward goes through a network that it does not train",
    "zero-fill": "Gradients are filled with zeros",
    "file-per-sample": "A file is parsed for each sample",
    "object-per-sample": "An object is built for each sample",
    "sample-each-epoch": "The same sample is made in each epoch",
    "constant-per-step": "A constant is computed in each step",
    "used-seldom": "Each step computes a value that few steps use",
    "collate-lists": "Batches are built through Python lists",
    "counts-in-loop": "A loop in Python counts pairs one by one",
    "loader-workers": "The main process loads the data itself",
    "iterable-worker": "The main process loads the data itself",
    "persistent-workers": "Loader workers are started again in each epoch",
    "no-workers": "Starting loader workers takes longer than loading",
    "pin-memory": "Copies to the GPU start from pageable memory",
    "tensor-on-cpu": "A tensor is made on the CPU and then moved",
    "item-each-step": "Each step waits for the GPU to read a value",
    "checkpoint-each-step": "A checkpoint is saved too often",
    "logging-each-step": "Something is logged too often",
    "sparse-gradient": "Gradients of a whole table are computed for a few of its rows",
    "growth-by-copy": "An array is copied whenever it grows",
    "one-step-used": "A layer computes all steps of a sequence, of which one is used",
    "pairs-by-product": "Similarities of all pairs go through a table of pairs of vectors",
    "pad-to-longest": "Batches are padded beyond their longest sequence",
    "fused-optimizer": "The optimizer updates one tensor at a time",
    "few-threads": "There are fewer threads than cores",
    "copy-each-step": "All weights are copied in each step",
    "kept-outputs": "Scores of a whole evaluation are kept",
    "activation-checkpointing": "The activations of all blocks do not fit into memory",
    "expandable-segments": "The allocator's memory is fragmented",
}


def show(result: FixResult, *, as_json: bool, plain: bool, verbose: bool) -> None:
    """Print the result on stdout, as one JSON document or as a screen."""
    if as_json:
        print_json(private(document(result)))
        return
    stdout(plain).print(as_text(result, verbose=verbose), markup=False, highlight=False, soft_wrap=True)


def as_text(result: FixResult, *, verbose: bool = False) -> str:
    """The screen."""
    launches = "1 launch" if result.launches == 1 else f"{result.launches} launches"
    lines = [headline(result), f"{launches} in {format_seconds(result.seconds)}", ""]
    if result.unequal:
        lines += [f"! The script does not repeat itself from launch to launch: {result.unequal}.", ""]
    for proof in result.accepted:
        lines += _accepted(proof)
    if result.accepted:
        lines += ["", escape_controls(result.diff.decode("utf-8", "replace")).rstrip("\n")]
        lines += [f"  export {name}={shlex.quote(value)}" for name, value in result.environment.items()]
        if result.whole is not None:
            lines += ["", f"together: {describe(result.whole)}"]
    else:
        lines += _nothing(result)
    lines += _others(result, verbose=verbose)
    lines += [f"note: {escape_line(note)}" for note in result.notes]
    return "\n".join([*lines, "", *_next(result)])


def headline(result: FixResult) -> str:
    """The result in one sentence."""
    if not result.accepted:
        if result.unequal:
            return "Nothing is proved: two launches of the unmodified script differ."
        if result.untried:
            return "No change is proved."
        seen = [f"{one.share:.0%} of a step goes into many short passes of a loop" for one in result.short_passes]
        seen += [f"{one.share:.0%} of what the model gets is padding" for one in result.evidence.padded]
        return f"No change found, but {seen[0]}." if seen else "No change found."
    if len(result.accepted) == 1:
        return f"{title_of(result.accepted[0].candidate.rewrite)} at {_where(result.accepted[0])}: a proved change."
    return f"{len(result.accepted)} proved changes."


def _accepted(proof: FixProof) -> list[str]:
    claim = "" if proof.claim is None else proof.claim.value
    lines = [
        f"{_where(proof)}  {title_of(proof.candidate.rewrite)}  [{proof.candidate.rewrite}, {claim}]",
        f"  proof: {describe(proof)}",
    ]
    besides = (*proof.candidate.besides, *([proof.why] if proof.why else []))
    return [*lines, *(f"  besides: {escape_line(sentence)}" for sentence in besides)]


def _nothing(result: FixResult) -> list[str]:
    """The lines for no change: what was examined, and where the time goes that was left unchanged."""
    steps = "the steps" if result.look is None else format_count(result.look.steps, "step")
    lines = [f"looked at {steps}: where they spend their time, what they keep, how they load data"]
    lines.append("  evaluation and work at the end of an epoch are included only if these steps reached them")
    lines.append("  fix sees only the kinds of waste that it knows; others may be there")
    if result.look is not None:
        lines.append(f"  {result.look.wait_share:.0%} of a step waits for data")
    loops = result.short_passes
    if loops:
        lines += ["", "many short passes in Python, for which fix has no change that it could prove"]
    for loop in loops:
        where = f"{loop.share:>5.0%}  {_at(loop.file, loop.line)}"
        each = f"{loop.passes:,.0f} passes in a step, {format_seconds(loop.pass_s)} each (to line {loop.last_line})"
        lines.append(f"  {where}  {each}")
    if loops:
        lines.append("  one call over whole arrays or tensors may replace them, unless a pass needs the one before it")
    for padded in result.evidence.padded:
        lines += ["", f"{padded.share:.0%} of what {_at(padded.file, padded.line)} gives to the model is padding"]
        lines.append(
            "  every sample of a batch ends in the same value there: pad each batch only to its longest sample,"
        )
        lines.append("  if the model masks what is padded")
    busiest = [one for one in result.evidence.own[:_MOST_LINES] if one.share >= _LEAST_SHARE]
    if busiest:
        lines += ["", "where a step spends its time, left unchanged"]
        lines += [f"  {one.share:>5.0%}  {_at(one.file, one.line)}  {_source_of(one)}".rstrip() for one in busiest]
    return lines


def _source_of(line: HotLine) -> str:
    """The line in the file, cut if it is long; '' if it cannot be read."""
    try:
        text = read_bytes(line.file, "Python").decode("utf-8", "replace").splitlines()[line.line - 1].strip()
    except (UnreadableError, IndexError):
        return ""
    return escape_line(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


def _others(result: FixResult, *, verbose: bool) -> list[str]:
    lines: list[str] = []
    shown = None if verbose else _MOST_SHOWN
    if result.lost:
        lines += ["", "tried, not kept"]
        lines += [f"  {_where(proof)}  {proof.candidate.rewrite}: {why_lost(proof)}" for proof in result.lost[:shown]]
    if result.refused:
        lines += ["", "not tried, because it would or could be wrong"]
        lines += [
            f"  {_at(one.file, one.line)}  {one.rewrite}: {escape_line(one.reason)}" for one in result.refused[:shown]
        ]
    return lines


def why_lost(proof: FixProof) -> str:
    """Why a tried change is not offered."""
    if proof.why:
        return escape_line(proof.why)
    span = proof.gain
    if span is None:
        return "it gains nothing"
    return f"no certain gain: {span.middle:.2f} times ({span.low:.2f} to {span.high:.2f})"


def _next(result: FixResult) -> list[str]:
    command = escape_line(shlex.join(result.options.command))
    if result.written:
        return [f"written  {_at(path)}" for path in result.written]
    if result.accepted and result.diff:
        patch = result.options.patch
        if patch is not None:
            return [f"next     patch -p1 < {quote_path(patch)}"]
        return [f"next     gpudoc fix --write -- {command}"]
    return [f"next     gpudoc tune -- {command}"]


def title_of(rewrite: str) -> str:
    """The problem that this rewrite solves, as a title."""
    return _TITLES.get(rewrite, rewrite)


def _where(proof: FixProof) -> str:
    return _at(proof.candidate.file, proof.candidate.line)


def _at(file: Path, line: int | None = None) -> str:
    name = escape_line(name_of(file))
    return name if line is None else f"{name}:{line}"
