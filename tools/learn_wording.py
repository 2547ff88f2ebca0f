"""Learn gpudoc/knowledge/wording.yaml from reports whose cause is known.

    python tools/learn_wording.py FOLDER... [--out FILE] [--folds 5]

Each FOLDER holds cases as YAML: `input` (what somebody posted), `cause` (an id of `gpudoc doctor --list`, or healthy)
and, when a fair judge would accept others, `also_acceptable`. The reports themselves are their authors' and are not
kept here; the table holds single words and numbers. Printed: how often the right cause comes first and among the first
three, on cases that the weights did not see.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.readers import read
from gpudoc.facts.redact import Redactor
from gpudoc.knowledge import wording

FEWEST_REPORTS = 3
LARGEST_SHARE = 0.35
# of the weights' squares and of the weights themselves, in the loss; the second makes most of them nothing
DECAY, SPARSITY = 1e-6, 1e-5
STEPS = 800
# what another cause that a judge would accept weighs beside the cause itself
ALSO = 0.3


@dataclass(frozen=True)
class Case:
    """A report as the set of its words, its cause, and the others that count as right."""

    tokens: frozenset[str]
    cause: str
    also: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """Weights [words, causes] and bias [causes] over a vocabulary with the rarity of each word."""

    causes: tuple[str, ...]
    rarity: dict[str, float]
    weights: torch.Tensor
    bias: torch.Tensor

    def scores(self, cases: list[Case]) -> torch.Tensor:
        """Log-likelihoods [cases, causes], up to a constant for each case."""
        return _matrix(cases, self.rarity) @ self.weights + self.bias


def main() -> int:
    """Learn, say how well it tells causes apart, write the table; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path(wording.__file__).with_name(wording.TABLE))
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    cases = read_cases(options.folders)
    right, near = cross_check(cases, options.folds)
    print(f"{len(cases)} reports: the right cause first in {right:.1%}, among three in {near:.1%} of those not seen")
    options.out.write_text(table(learn(cases), len(cases), (right, near)), "utf-8")
    print(options.out)
    return 0


def read_cases(folders: list[Path]) -> list[Case]:
    """Every case below the folders, in the order of their paths; one text counts once."""
    found: dict[str, Case] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.yaml")):
        row = yaml.safe_load(path.read_text("utf-8"))
        # no user's or host's name may become a word
        text = Redactor().text(read(str(row["input"])).text.flat)
        also = tuple(row.get("also_acceptable") or ())
        unknown = {row["cause"], *also} - CATALOGUE.keys() - {wording.HEALTHY}
        if unknown:
            raise SystemExit(f"{path}: no such cause: {', '.join(sorted(unknown))} (gpudoc doctor --list)")
        found.setdefault(text, Case(frozenset(wording.tokens(text)), row["cause"], also))
    return list(found.values())


def learn(cases: list[Case]) -> Model:
    """Multinomial logistic regression on which words are there; no word speaks against a cause."""
    counts = collections.Counter(token for case in cases for token in case.tokens)
    most = LARGEST_SHARE * len(cases)
    rarity = {t: math.log(len(cases) / n) for t, n in sorted(counts.items()) if FEWEST_REPORTS <= n <= most}
    causes = tuple(sorted({case.cause for case in cases} | {cause for case in cases for cause in case.also}))
    wanted = torch.zeros(len(cases), len(causes))
    for place, case in enumerate(cases):
        wanted[place, causes.index(case.cause)] = 1.0
        for cause in case.also:
            wanted[place, causes.index(cause)] = ALSO
    wanted /= wanted.sum(1, keepdim=True)
    present = _matrix(cases, rarity)
    weights = torch.zeros(len(rarity), len(causes), requires_grad=True)
    bias = torch.zeros(len(causes), requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=0.3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        likelihood = (wanted * torch.log_softmax(present @ weights + bias, 1)).sum(1).mean()
        (DECAY * weights.square().sum() + SPARSITY * weights.sum() - likelihood).backward()
        optimizer.step()
        with torch.no_grad():
            weights.clamp_(min=0)
    return Model(causes, rarity, weights.detach(), bias.detach())


def cross_check(cases: list[Case], folds: int) -> tuple[float, float]:
    """Shares of cases whose cause comes first, and among three, when learned from the others."""
    order = torch.randperm(len(cases), generator=torch.Generator().manual_seed(0)).tolist()
    right = near = 0
    for fold in range(folds):
        held = set(order[fold::folds])
        model = learn([case for place, case in enumerate(cases) if place not in held])
        tested = [cases[place] for place in sorted(held)]
        for case, scores in zip(tested, model.scores(tested), strict=True):
            first = [model.causes[place] for place in scores.topk(min(3, len(model.causes))).indices.tolist()]
            accepted = {case.cause, *case.also}
            right += first[0] in accepted
            near += any(cause in accepted for cause in first)
    return right / len(cases), near / len(cases)


def table(model: Model, num_cases: int, shares: tuple[float, float]) -> str:
    """The table as YAML, one word a line: the word, its rarity, and place:weight for the causes that it speaks for."""
    lines = [
        "# Single words of public reports and what they say about the cause, as tools/learn_wording.py learned them:",
        f"# {num_cases} reports whose cause is known, labelled by hand. Of reports that the weights had not seen the",
        f"# right cause came first in {shares[0]:.1%} and among three in {shares[1]:.1%}. All numbers are hundredths.",
        "source: public issue threads whose cause was confirmed there; only words and numbers are kept",
        f"learned: {datetime.date.today()}",
        f"causes: [{', '.join(model.causes)}]",
        f"bias: [{', '.join(str(_hundredths(number)) for number in model.bias.tolist())}]",
        "# word, rarity, place of the cause:weight ...",
        "words:",
    ]
    for (token, rarity), weights in zip(model.rarity.items(), model.weights.tolist(), strict=True):
        spoken = [f"{place}:{_hundredths(weight)}" for place, weight in enumerate(weights) if _hundredths(weight)]
        if spoken:
            lines.append(f'  - "{token} {_hundredths(rarity)} {" ".join(spoken)}"')
    return "\n".join(lines) + "\n"


def _hundredths(number: float) -> int:
    return round(number * wording.SCALE)


def _matrix(cases: list[Case], rarity: dict[str, float]) -> torch.Tensor:
    place = {token: number for number, token in enumerate(rarity)}
    found = torch.zeros(len(cases), len(rarity))
    for row, case in enumerate(cases):
        for token in case.tokens & rarity.keys():
            found[row, place[token]] = rarity[token]
    return found / found.norm(dim=1, keepdim=True).clamp_min(1e-6)


if __name__ == "__main__":
    raise SystemExit(main())
