"""The scripts under tests/fix/rewrites, and what the first line of each says that a run of it showed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gpudoc.fix.model import HotLine, PaddedInput, RunEvidence

FOLDER = Path(__file__).parent / "rewrites"
# `hot `loss.backward()` 0.3`: the first line that begins with these words, and a number
_ITEM = re.compile(r"(?P<kind>\w+)(?: `(?P<text>[^`]+)`)?(?: (?P<number>[\d.]+))?$")


class Script(NamedTuple):
    rewrite: str
    path: Path
    evidence: RunEvidence
    refusal: str
    """Words of the refusal; '' where the script is changed, or where there is nothing to refuse."""


def read_script(rewrite: str, path: Path) -> Script:
    text = path.read_bytes().decode("utf-8")
    head, _, refusal = text.splitlines()[0].lstrip("# ").removesuffix(" -> nothing").partition(" -> refused: ")
    return Script(rewrite, path, evidence_of(path, text, head), refusal)


def evidence_of(path: Path, text: str, head: str) -> RunEvidence:
    fields: dict = {"hot": ()}
    for item in head.split("; "):
        found = _ITEM.match(item)
        assert found, f"{path}: {item!r} is no evidence"
        kind, number = found["kind"], found["number"]
        line = 0
        if found["text"]:
            lines = [n for n, one in enumerate(text.splitlines(), 1) if n > 1 and one.strip().startswith(found["text"])]
            assert lines, f"{path}: no line begins with {found['text']!r}"
            line = lines[0]
        if kind == "hot":
            fields["hot"] += (HotLine(path, line, float(number or 0.3)),)
        elif kind == "died":
            fields["died_at"] = HotLine(path, line, float(number or 1.0))
        elif kind == "keeps":
            fields["keeps_at"] = ((path, line),)
            fields["growth_bytes"] = 1e6
        elif kind == "graph":
            fields["no_backward_at"] = ((path, line),)
        elif kind == "loader":
            fields["loader_line"] = (path, line)
        elif kind == "workers":
            fields["num_workers"] = int(number)
        elif kind == "anomaly":
            fields["anomaly_detection"] = True
        elif kind == "grows":
            fields["evaluation_grows"] = True
        elif kind in ("cuda", "fragmented"):
            fields[kind] = True
        elif kind == "padded":
            fields["padded"] = (PaddedInput(path, line, 0.5, int(number)),)
        elif kind == "float64":
            fields["float64_share"] = float(number)
        elif kind == "starting":
            fields["worker_start_share"] = float(number)
        else:
            assert kind == "threads", f"{path}: {kind!r} is no evidence"
            fields["threads"] = int(number)
    return RunEvidence(**fields)


def _folders() -> list[Path]:
    return sorted(one for one in FOLDER.iterdir() if one.is_dir())


CHANGED = [read_script(folder.name, path) for folder in _folders() for path in sorted(folder.glob("before*.py"))]
REFUSED = [read_script(folder.name, path) for folder in _folders() for path in sorted(folder.glob("refused/*.py"))]


def name_of(script: Script) -> str:
    return str(script.path.relative_to(FOLDER))
