"""The plan against what other people measured on real cards: error of each cell, and brackets that hold.

python campaigns/published.py [--only TEXT] [--record]
Needs timm, torchvision and transformers (pip install --no-deps timm torchvision). Nothing runs on a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import dataclass, replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from campaigns.published_nets import Row, recipe_of  # noqa: E402
from gpudoc.knowledge.cards import find_card, require_card  # noqa: E402
from gpudoc.plan.need import Need  # noqa: E402
from gpudoc.plan.planning import Plan, traced  # noqa: E402
from gpudoc.plan.tracing import UntraceableError  # noqa: E402
from gpudoc.stats import median  # noqa: E402
from gpudoc.units import GIB, MIB  # noqa: E402

DATA = ROOT / "campaigns" / "published_memory.yaml"
UNITS = {"mib": MIB, "gib": GIB, "gb": 10**9}
WITHOUT_END = 1 << 50
KERNELS = ("nms", "qnms", "roi_align", "qroi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d",
           "_roi_align_backward", "_ps_roi_align_backward", "_roi_pool_backward", "_ps_roi_pool_backward",
           "_deform_conv2d_backward")  # fmt: skip
LIBRARIES = ("timm", "torchvision", "transformers")
SPEED = ROOT / "campaigns" / "published_speed.yaml"
INTRODUCTION = """# The plan against published measurements

`python campaigns/published.py --record`: training steps that other people measured on real cards, planned here
without one. `campaigns/published_memory.yaml` has each cell with its source; nobody ran a cell for this. Known cells
were looked at while the plan was mended: attention in 32 bits, rates that a model reads while it is built, reduced
losses, gradients that are kept through the forward pass, contexts. Unseen ones were written down before any of them
was planned, and no mend was made for them; three of single operations (layer norm, group norm, head and loss) were
corrected afterwards in which tensors their script holds. Cells of torch before 1.11 are planned with a softmax that
keeps its input, as theirs did.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One cell: what was measured and what is planned, in bytes, or batches where `is_batch`; `held` for those."""

    cell: Row
    measured: str
    planned: str
    error: float | None
    held: bool | None

    @property
    def verdict(self) -> str:
        """'+1.2%', or whether the bracket held."""
        return f"{self.error:+.1%}" if self.error is not None else "held" if self.held else "missed"


def cells() -> list[Row]:
    """Every cell with what its page's script shares."""
    data = yaml.safe_load(DATA.read_text())
    rows = [{**data["scripts"][row["page"]], **row, "url": data["pages"][row["page"]]} for row in data["cells"]]
    for row in rows:
        row["context_mib"] = data["contexts"][row["context"]]["mib"] if "context" in row else [0, 0]
    return rows


def answer(cell: Row) -> Answer:
    """Plan the cell's step and compare."""
    try:
        plan = traced(recipe_of(cell))
    except UntraceableError:
        ran = f"{cell['fits']} ran" if "fits" in cell else ""
        return Answer(cell=cell, measured=ran, planned="cannot be traced", error=None, held=False)
    if "fits" in cell:
        return _bracket(cell, plan)
    (what, unit), value = next((key.split("_"), cell[key]) for key in cell if key.split("_")[-1] in UNITS and
                               key.split("_")[0] in ("allocated", "reserved", "card"))  # fmt: skip
    measured = value * UNITS[unit]
    planned = _planned(cell, plan, what)
    return Answer(
        cell=cell,
        measured=f"{measured / GIB:.2f} GiB {what}",
        planned=f"{planned / GIB:.2f} GiB",
        error=planned / measured - 1,
        held=None,
    )


def _planned(cell: Row, plan: Plan, what: str) -> float:
    if cell.get("first_step"):
        marks = plan.memory.marks
        until = {name: place for name, place in marks.items() if place < marks["step 1"]}
        plan = replace(plan, memory=replace(plan.memory, events=plan.memory.events[: marks["step 1"]], marks=until))
    need = _need(cell, plan, WITHOUT_END)
    if what == "allocated":
        return need.replay(cell["batch"]).allocated_peak_bytes
    context = sum(cell["context_mib"]) / 2 * MIB if what == "card" else 0
    return need.reserved_bytes(cell["batch"]) + context


def _bracket(cell: Row, plan: Plan) -> Answer:
    low, high = ((cell["capacity_mib"] - mib) * MIB for mib in reversed(cell["context_mib"]))
    least, most = (_need(cell, plan, size).largest_batch() for size in (low, high))
    fails = cell.get("fails", 1 << 20)
    return Answer(
        cell=cell,
        measured=f"{cell['fits']} ran" + (f", {fails} did not" if "fails" in cell else ""),
        planned=f"{least} to {most}",
        error=None,
        held=most >= cell["fits"] and least < fails,
    )


def _need(cell: Row, plan: Plan, size: int) -> Need:
    card = find_card(cell.get("card", "A100"))
    return Need(plan, size, card.capability if card else (8, 0))


def stand_for_kernels() -> Any:
    """Names of torchvision's kernels, so that its models can be imported where a build for another torch cannot."""
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in KERNELS:
        with contextlib.suppress(RuntimeError):
            library.define(f"{name}(Tensor value) -> Tensor")
    return library


def summary(found: list[Answer]) -> list[str]:
    """How many cells that are trusted lie within 5 and 15 %, and how many brackets held; for each half."""
    lines = []
    for half in ("known", "unseen"):
        trusted = [one for one in found if one.cell["half"] == half and one.cell.get("trust") != "low"]
        errors = [abs(one.error) for one in trusted if one.error is not None]
        brackets = [one.held for one in trusted if one.held is not None]
        if errors:
            lines.append(
                f"{half}: {sum(error <= 0.05 for error in errors)} of {len(errors)} within 5 %, "
                f"{sum(error <= 0.15 for error in errors)} within 15 %, median {median(errors):.1%}, "
                f"largest {max(errors):.1%}; {sum(brackets)} of {len(brackets)} brackets held"
            )
    return lines


def lines_of(found: list[Answer]) -> list[str]:
    """The record's tables."""
    lines = []
    for half in ("known", "unseen"):
        lines += [
            "",
            f"## {half}",
            "",
            "| cell | measured | planned | error | why, where over 5 % |",
            "|---|---|---|---|---|",
        ]
        for one in found:
            if one.cell["half"] == half:
                name = f"[{one.cell['id']}]({one.cell['url']})"
                columns = (name, one.measured, one.planned, one.verdict, one.cell.get("why", ""))
                lines.append(f"| {' | '.join(columns)} |")
    return lines


def speeds() -> list[str]:
    """Published rates and bandwidths as shares of what the card is said to be able to do: never above it."""
    lines = [
        "",
        "## Rates and bandwidths",
        "",
        "| card | of what | measured | at the most | share |",
        "|---|---|---|---|---|",
    ]
    for row in yaml.safe_load(SPEED.read_text())["rows"]:
        card = require_card(row["card"])
        most = {"memory": card.bandwidth_gb_per_s, "host": card.host_gb_per_s}.get(row["what"])
        most = card.tflops[row["what"]] if most is None else most
        unit = "GB/s" if row["what"] in ("memory", "host") else "TFLOP/s"
        columns = (f"[{card.name}]({row['url']})", row["what"], f"{row['value']} {unit}", f"{most:.4g} {unit}")
        lines.append(f"| {' | '.join(columns)} | {row['value'] / most:.0%} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cells whose id or half contains this text")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        # a cell that cannot be built would count as one that is missed
        raise SystemExit(f"needs {', '.join(missing)}: pip install --no-deps {' '.join(missing)}")
    kernels = stand_for_kernels()
    found: list[Answer] = []
    for cell in cells():
        if options.only in f"{cell['half']} {cell['id']}":
            found.append(answer(cell))
            last = found[-1]
            print(f"{cell['half']:7} {cell['id']:36} {last.measured:26} {last.planned:14} {last.verdict}", flush=True)
    del kernels
    print(*summary(found), *speeds(), sep="\n")
    if options.record:
        path = ROOT / "records" / f"{date.today().isoformat()}-published.md"
        path.write_text(
            "\n".join([INTRODUCTION, *(f"- {line}" for line in summary(found)), *lines_of(found), *speeds(), ""])
        )
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
