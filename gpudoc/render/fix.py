"""What `fix` says: the cause with its line, the change and its proof, what it changes besides, and what was lost."""

from __future__ import annotations

import shlex
from pathlib import Path

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.facts.redact import private
from gpudoc.fix.document import document
from gpudoc.fix.model import HotLine, RunEvidence, name_of
from gpudoc.fix.proof import FixProof, describe
from gpudoc.fix.result import FixResult
from gpudoc.render.console import print_json, stdout
from gpudoc.shell import quote_path
from gpudoc.units import format_count, format_seconds

_MOST_SHOWN = 8
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
    """The result on stdout, as one JSON document or as a screen."""
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
    """The answer in a sentence."""
    if not result.accepted:
        if result.unequal:
            return "Nothing is proved: two launches of the unmodified script differ."
        return "No change is proved." if result.untried else "No change found."
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
    """What was looked at, and the largest share that was left alone."""
    steps = "the steps" if result.look is None else format_count(result.look.steps, "step")
    lines = [f"looked at {steps}: where they spend their time, what they keep, how they load data"]
    lines.append("  evaluation and work at the end of an epoch are included only if these steps reached them")
    lines.append("  fix sees only the kinds of waste that it knows; others may be there")
    most = next((line for line in result.evidence.hot if _is_leaf(line, result.evidence)), None)
    if most is not None:
        lines.append(f"  the largest share: {most.share:.0%} at {_at(most.file, most.line)}, left unchanged")
    if result.look is not None:
        lines.append(f"  {result.look.wait_share:.0%} of a step waits for data")
    return lines


def _is_leaf(line: HotLine, evidence: RunEvidence) -> bool:
    """Whether it is a line where time goes, and not one that calls all the others."""
    return line.share < 0.9 or line is evidence.hot[-1]


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
    """Why a change that was tried is not offered."""
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
    """What is wrong where this rewrite helps, as a title."""
    return _TITLES.get(rewrite, rewrite)


def _where(proof: FixProof) -> str:
    return _at(proof.candidate.file, proof.candidate.line)


def _at(file: Path, line: int | None = None) -> str:
    name = escape_line(name_of(file))
    return name if line is None else f"{name}:{line}"
