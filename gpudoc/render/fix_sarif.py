"""Proved changes of `fix` as SARIF 2.1.0: a result at each cause, and the change as a fix that an editor can apply."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator
from pathlib import Path

from gpudoc.control_characters import to_json
from gpudoc.facts.redact import Redactor, whole
from gpudoc.fix.proof import FixProof, describe
from gpudoc.fix.result import FixResult
from gpudoc.render.fix import title_of
from gpudoc.render.sarif import address_below, location_of, sarif_log
from gpudoc.writing import write_whole


def save(path: Path, result: FixResult) -> None:
    """Write the document; GpudocError if it cannot be written."""
    # its messages are redacted; the lines of a fix are the user's own and must stay unchanged
    text = to_json(whole(render_fix_sarif(result, Path.cwd())))
    write_whole(path, text + "\n", hint="--sarif fix.sarif")


def render_fix_sarif(result: FixResult, root: Path) -> dict[str, object]:
    """The document: its fixes apply to the files as they were examined, and only proved changes are fixes.

    Several changes are proved on top of each other and together, so they are one fix at the first result.
    """
    results = [_result(result, number, proof, root) for number, proof in enumerate(result.accepted)]
    named = dict.fromkeys(proof.candidate.rewrite for proof in result.accepted)
    rules = [{"id": name, "shortDescription": {"text": title_of(name)}} for name in named]
    return sarif_log(rules, results, succeeded=not result.interrupted)


def _result(result: FixResult, number: int, proof: FixProof, root: Path) -> dict[str, object]:
    candidate, span = proof.candidate, proof.gain
    first = result.before.get(candidate.file, candidate.before)
    line = line_before(first, candidate.before, candidate.line)
    said = [f"{title_of(candidate.rewrite)}. Proved: {describe(proof)}.", *candidate.besides]
    said += [proof.why] if proof.why else []
    said += [f"Start the command with {name}={value}." for name, value in candidate.environment]
    if number:
        said.append("The fix of the first result includes this change.")
    fixes = [] if number else _fixes(result, root)
    return {
        "ruleId": candidate.rewrite,
        "level": "warning",
        "message": {"text": Redactor.of_this_process().text("\n".join(said))},
        "locations": [location_of(address_below(str(candidate.file), root), line)],
        "properties": {
            "claim": "" if proof.claim is None else proof.claim.value,
            "gain": [] if span is None else [round(span.middle, 4), round(span.low, 4), round(span.high, 4)],
        },
        **({"fixes": fixes} if fixes else {}),
    }


def _fixes(result: FixResult, root: Path) -> list[dict[str, object]]:
    changes = [
        {
            "artifactLocation": {"uri": address_below(str(path), root)},
            "replacements": list(replacements(before, result.after[path])),
        }
        for path, before in result.before.items()
        if before != result.after[path]
    ]
    if not changes:
        return []
    titles = dict.fromkeys(title_of(proof.candidate.rewrite) for proof in result.accepted)
    proof = result.accepted[0] if result.whole is None else result.whole
    return [{"description": {"text": f"{'; '.join(titles)}: {describe(proof)}"}, "artifactChanges": changes}]


def replacements(before: str, after: str) -> Iterator[dict[str, object]]:
    """The edits from `before` to `after`: regions from a line and column up to before another, both counted from 1."""
    old, new = _lines(before), _lines(after)
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        gone, come = "".join(old[start:end]), "".join(new[new_start:new_end])
        front = _common(gone, come)
        back = _common(gone[front:][::-1], come[front:][::-1])
        line, column = _position(gone[:front], start)
        end_line, end_column = _position(gone[: len(gone) - back], start)
        region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
        yield {"deletedRegion": region, "insertedContent": {"text": come[front : len(come) - back]}}


def line_before(first: str, before: str, line: int) -> int:
    """The line in `first` of a line in `before`, which is the same file after other changes."""
    pieces = difflib.SequenceMatcher(None, _lines(first), _lines(before), autojunk=False).get_opcodes()
    for kind, start, end, new_start, new_end in pieces:
        if new_start < line <= new_end:
            return start + line - new_start if kind == "equal" else min(start + 1, max(1, end))
    return line


def _common(one: str, other: str) -> int:
    """How many characters the beginnings of two texts have in common, without splitting a line ending."""
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    while length and one[length - 1] in "\r\n" and {*one[length : length + 1], *other[length : length + 1]} & {*"\r\n"}:
        length -= 1
    return length


def _lines(text: str) -> list[str]:
    """The lines with their endings of any kind."""
    return list(io.StringIO(text, newline=""))


def _position(text: str, lines_above: int) -> tuple[int, int]:
    """Line and column where `text` ends if it begins in column 1 after that many lines; columns are in UTF-16."""
    lines = _lines(text)
    if not lines:
        return lines_above + 1, 1
    if lines[-1].endswith(("\n", "\r")):
        return lines_above + len(lines) + 1, 1
    return lines_above + len(lines), len(lines[-1].encode("utf-16-le")) // 2 + 1
