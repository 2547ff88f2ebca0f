"""Continue learning gpudoc/knowledge/wording.tsv, from reports whose cause is known.

    python tools/learn_wording.py FOLDER...

Learning begins at the existing table. The reports that it was learned from are listed in
tools/wording/reports.tsv and are left out; the new ones are added to the list. Each FOLDER holds cases as YAML:
`url`, `input` (what somebody posted), `cause` (an id of `gpudoc doctor --list`, healthy or other) and, when a fair
judge would accept others, `also_acceptable`. The reports themselves belong to their authors and are not kept here: the
list has the address, cause and SHA-256 of each text, the table only single words and numbers. Weights that hardly
matter are not kept. The posts of tools/wording/posts are learned too, a file for each cause: somebody who knew the
cause wrote them for this table, so they are ours and stay here. They are easier than posts of strangers, so nothing is
judged by them. It prints and writes how often the right cause comes first and among three on unseen reports, and how
sure the table is of it. Then doctor judges each report by a table that has not seen it, and what its finders say is
weighed with that table's words, so that doctor shows itself as sure as it is right; that is printed and written too.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import hashlib
import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import torch
import yaml

from gpudoc.doctor import likelihood
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Finding
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.doctor.symptoms import is_of_no_matter
from gpudoc.facts.readers import read
from gpudoc.facts.redact import Redactor
from gpudoc.knowledge import wording

LIST = Path(__file__).with_name("wording") / "reports.tsv"
POSTS = LIST.with_name("posts")
BETWEEN_POSTS = "\n%%%\n"
TABLE = Path(wording.__file__).with_name(wording.TABLE)
ANSWERS = (wording.HEALTHY, wording.OTHER)
# the weight of words and of facts relative to each other
BLOCKS = (1.0, 0.7)
FEWEST_REPORTS, LARGEST_SHARE = 3, 0.5
# the factor of the weights' squares in the loss
DECAY = 3e-4
# a weight is not kept if it moves the sum of an average report by less: of a word, and of a fact (a report has few)
LEAST = (0.075, 0.0075)
# with fewer reports, the weight of finders' confidence against words is not fitted: the old table knows it better
FEWEST_TO_FIT_SHOWN = 1000
SURE_OF_NEW = "how sure doctor is of the new ones"
# the penalty on how far the trust in the old weights may leave 1
DOUBT = 0.1
STEPS = 150
# the weight of another cause that a judge would accept, relative to the cause itself
ALSO = 0.3
BINS = 5
# unchanged log odds, until cases say otherwise
AS_IT_IS, SHOWN_AS_IT_IS = (1.0, 0.0), (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Case:
    """A report, its features, its cause, the other causes that count as right, and its address."""

    features: tuple[frozenset[str], ...]
    cause: str
    also: tuple[str, ...]
    url: str
    digest: str
    text: str


@dataclass(frozen=True)
class Model:
    """Weights [features, answers] and bias [answers] over a vocabulary with the rarity of each feature."""

    causes: tuple[str, ...]
    rarity: dict[str, float]
    weights: torch.Tensor
    bias: torch.Tensor
    certainty: tuple[float, ...] = AS_IT_IS
    shown: tuple[float, ...] = SHOWN_AS_IT_IS

    def scores(self, cases: Sequence[Case]) -> torch.Tensor:
        """Log-likelihoods [cases, answers], up to a constant for each case."""
        return _matrix(cases, self.rarity) @ self.weights + self.bias


def main() -> int:
    """Learn, say how well the model tells causes apart, and write the table and its list; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--reports", type=Path, default=LIST)
    parser.add_argument("--posts", type=Path, default=POSTS)
    parser.add_argument("--out", type=Path, default=TABLE)
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    listed = options.reports.read_text("utf-8").splitlines() if options.reports.exists() else []
    learned = {row.rsplit("\t", 1)[1] for row in listed}
    cases = read_cases(options.folders)
    new = [case for case in cases if case.digest not in learned]
    if len(new) < len(cases):
        print(f"{len(cases) - len(new)} reports are in {options.reports} and are left out")
    if not new:
        raise SystemExit(f"nothing to learn from: {options.reports} has every report")
    model, figures = checked(new, options.folds, read_posts(options.posts))
    print(*(f"{name}: {said}" for name, said in figures.items()), sep="\n")
    rows = sorted([*listed, *("\t".join((c.url, c.cause, ",".join(c.also), c.digest)) for c in new)])
    options.reports.write_text("\n".join(rows) + "\n", "utf-8")
    manifest = {
        **wording.load(TABLE).manifest,
        "reports": f"{len(rows)}, listed in tools/wording/reports.tsv",
        "list": hashlib.sha256(options.reports.read_bytes()).hexdigest(),
        "learned": str(datetime.date.today()),
        "figures": f"of {len(new)} new reports, each judged by a table that has not seen it",
        **figures,
    }
    options.out.write_text(table(model, manifest), "utf-8")
    print(options.out)
    return 0


def read_cases(folders: Sequence[Path]) -> list[Case]:
    """Every case below the folders, in the order of their paths; one text counts once."""
    found: dict[str, Case] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.yaml")):
        row = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        also = tuple(row.get("also_acceptable") or ())
        unknown = {row["cause"], *also} - CATALOGUE.keys() - set(ANSWERS)
        if unknown:
            raise SystemExit(f"{path}: no such cause: {', '.join(sorted(unknown))} (gpudoc doctor --list)")
        case = _case(str(row["input"]), row["cause"], also, str(row.get("url", "")))
        found.setdefault(case.digest, case)
    return list(found.values())


def read_posts(folder: Path) -> list[Case]:
    """The posts below a folder: a file for each cause, with the cause's id as its name."""
    paths = sorted(folder.glob("*.txt"))
    unknown = {path.stem for path in paths} - CATALOGUE.keys() - set(ANSWERS)
    if unknown:
        raise SystemExit(f"{folder}: no such cause: {', '.join(sorted(unknown))} (gpudoc doctor --list)")
    texts = ((path.stem, path.read_text("utf-8").rstrip("\n")) for path in paths)
    return [_case(post, cause) for cause, text in texts for post in text.split(BETWEEN_POSTS)]


def _case(text: str, cause: str, also: tuple[str, ...] = (), url: str = "") -> Case:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    reading = read(text)
    # no user's or host's name may become a word
    features = wording.features(Redactor().text(reading.text.flat), likelihood.facts_of(reading))
    return Case(features, cause, also, url, digest, text)


def checked(cases: Sequence[Case], folds: int, posts: Sequence[Case] = ()) -> tuple[Model, dict[str, str]]:
    """The model of all cases, and how often right and how sure models are on cases that they did not learn from.

    The list has one report of a thread, so that no thread is in two folds; each fold learns from the posts.
    """
    order = torch.randperm(len(cases), generator=torch.Generator().manual_seed(0)).tolist()
    parts: list[tuple[Model, list[Case]]] = []
    model = learn([*cases, *posts])
    for fold in range(folds):
        out = set(order[fold::folds])
        part = learn([*(case for place, case in enumerate(cases) if place not in out), *posts], model.causes)
        parts.append((part, [cases[place] for place in sorted(out)]))
    shares = torch.softmax(torch.cat([part.scores(tested) for part, tested in parts]), 1)
    named = shares.topk(3)
    accepted = [{case.cause, *case.also} for _, tested in parts for case in tested]
    rows = zip(named.indices.tolist(), accepted, strict=True)
    right = torch.tensor([[float(model.causes[place] in fair) for place in row] for row, fair in rows])
    odds = [[wording.log_odds(share), 1.0] for share in named.values[:, 0].tolist()]
    slope, shift = _logistic(odds, right[:, 0].tolist(), AS_IT_IS)
    sure = [wording.sure_of(share, (slope, shift)) for share in named.values[:, 0].tolist()]
    first = [_firsts(replace(part, certainty=(slope, shift)), tested) for part, tested in parts]
    is_fitted = len(cases) >= FEWEST_TO_FIT_SHOWN
    shown = _shown_weights([one for part in first for one in part]) if is_fitted else wording.load(TABLE).shown
    figures = {
        "held back": f"right first {right[:, 0].mean():.1%}, among three {right.amax(1).mean():.1%}",
        "how sure": _bins(list(zip(sure, right[:, 0].tolist(), strict=True))),
        ("how sure doctor is" if is_fitted else SURE_OF_NEW): _bins(
            _shown_by_the_others(first) if is_fitted else _shown_by(shown, first)
        ),
    }
    return replace(model, certainty=(slope, shift), shown=shown), figures


@dataclass(frozen=True)
class First:
    """Doctor's first finding of a case: how sure it is, whether it is right, and how likely words make its cause.

    With `by_words`, only words found it.
    """

    confidence: float
    sure: float | None
    right: bool
    by_words: bool

    def shown(self, weights: tuple[float, ...]) -> float:
        """The confidence that doctor would show."""
        own, other, words = weights
        return self.confidence if self.by_words else wording.shown_as(self.confidence, self.sure, (own, other, words))


def _firsts(model: Model, cases: Sequence[Case]) -> list[First]:
    """Doctor's first finding in each of the cases, with a table that shows confidence as finders gave it."""
    found = []
    with mock.patch.object(wording, "table", return_value=wording.parse(table(model, {"": ""}))):
        for case in cases:
            reading = read(case.text)
            report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading))
            if report.findings:
                one = report.findings[0]
                sure = {answer.cause: answer.sure for answer in likelihood.likely_causes(reading)}.get(one.id)
                by_words = all(seen.fact == likelihood.WORDS for seen in one.evidence)
                found.append(First(one.confidence, sure, _is_right(one, {case.cause, *case.also}), by_words))
    return found


def _is_right(first: Finding, fair: Collection[str]) -> bool:
    """Whether a fair judge accepts the finding; a message that stops nothing says that nothing is wrong."""
    return first.id in fair or (is_of_no_matter(first) and wording.HEALTHY in fair)


def _shown_weights(found: Sequence[First]) -> tuple[float, ...]:
    own = [one for one in found if not one.by_words]
    rows = [wording.spoken(one.confidence, one.sure) for one in own]
    return _logistic([[odds, 1.0, words] for odds, words in rows], [float(one.right) for one in own], SHOWN_AS_IT_IS)


def _shown_by(weights: tuple[float, ...], folds: Sequence[Sequence[First]]) -> list[tuple[float, float]]:
    return [(one.shown(weights), float(one.right)) for fold in folds for one in fold]


def _shown_by_the_others(folds: Sequence[Sequence[First]]) -> list[tuple[float, float]]:
    """The confidence shown for each finding with the weights of the other folds, and whether it is right."""
    shown = []
    for place, fold in enumerate(folds):
        weights = _shown_weights([one for other in (*folds[:place], *folds[place + 1 :]) for one in other])
        shown += [(one.shown(weights), float(one.right)) for one in fold]
    return shown


def learn(cases: Sequence[Case], causes: tuple[str, ...] | None = None) -> Model:
    """Multinomial logistic regression that begins at the existing table; weights that hardly matter are left out.

    There are more features than cases, so the unknowns are how much each case speaks for each cause.
    """
    before = wording.load(TABLE)
    labels = {cause for case in cases for cause in (case.cause, *case.also)}
    causes = causes or tuple(sorted(labels | set(before.causes)))
    begun = _begun(before, causes, _vocabulary(cases, before))
    present = _matrix(cases, begun.rarity)
    offset, wanted, alike = begun.scores(cases), _wanted(cases, causes), present @ present.T
    spoken = torch.zeros(len(cases), len(causes), requires_grad=True)
    bias = torch.zeros(len(causes), requires_grad=True)
    trust = torch.tensor(1.0, requires_grad=True)
    optimizer = torch.optim.LBFGS([spoken, bias, trust], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        summed = alike @ spoken
        likelihood = (wanted * torch.log_softmax(summed + bias + trust * offset, 1)).sum(1).mean()
        shrunk = DECAY * ((spoken * summed).sum() / 2 + bias.square().sum())
        lost = shrunk + DOUBT * (trust - 1).square() - likelihood
        lost.backward()
        return lost

    optimizer.step(loss)
    with torch.no_grad():
        weights, bias_now = present.T @ spoken + trust * begun.weights, bias + trust * begun.bias
        return pruned(replace(begun, weights=weights, bias=bias_now), before.rows.keys())


def pruned(model: Model, known: Collection[str]) -> Model:
    """The model without weights that hardly matter, and without new words that speak for nothing."""
    shares = [_of(name, BLOCKS) * rarity * math.exp(-rarity) for name, rarity in model.rarity.items()]
    least = torch.tensor([_of(name, LEAST) for name in model.rarity])
    speaks = (model.weights * torch.tensor(shares)[:, None]).abs() >= least[:, None]
    kept = [name in known or bool(row.any()) for name, row in zip(model.rarity, speaks, strict=True)]
    rarity = dict(itertools.compress(model.rarity.items(), kept))
    return replace(model, rarity=rarity, weights=torch.where(speaks, model.weights, 0.0)[torch.tensor(kept)])


def _begun(before: wording.LearnedTable, causes: tuple[str, ...], rarity: dict[str, float]) -> Model:
    """The old table as a model over these causes and this vocabulary."""
    weights = torch.zeros(len(rarity), len(causes))
    bias = torch.full((len(causes),), min(before.bias))
    places = [causes.index(cause) for cause in before.causes]
    bias[places] = torch.tensor(before.bias)
    row_of = {name: number for number, name in enumerate(rarity)}
    for name, row in before.rows.items():
        for place, weight in wording.parsed(row)[1]:
            weights[row_of[name], places[place]] = weight / _of(name, BLOCKS)
    return Model(causes, rarity, weights, bias)


def _of(name: str, blocks: tuple[float, float]) -> float:
    """The value for a word or for a fact, depending on `name`."""
    return blocks[name.startswith(wording.FACT)]


def _vocabulary(cases: Sequence[Case], before: wording.LearnedTable) -> dict[str, float]:
    """Feature -> rarity: the old ones unchanged, and those that are in some of the reports but not in most."""
    counts = collections.Counter(name for case in cases for block in case.features for name in block)
    most = LARGEST_SHARE * len(cases)
    rarity = {t: math.log(len(cases) / n) for t, n in sorted(counts.items()) if FEWEST_REPORTS <= n <= most}
    return rarity | {name: wording.parsed(row)[0] for name, row in before.rows.items()}


def _matrix(cases: Sequence[Case], rarity: dict[str, float]) -> torch.Tensor:
    place = {name: number for number, name in enumerate(rarity)}
    found = torch.zeros(len(cases), len(rarity))
    for row, case in enumerate(cases):
        for block, share in zip(case.features, BLOCKS, strict=True):
            names = [name for name in block if name in rarity]
            length = math.sqrt(sum(rarity[name] ** 2 for name in names)) or 1.0
            for name in names:
                found[row, place[name]] = share * rarity[name] / length
    return found


def _wanted(cases: Sequence[Case], causes: tuple[str, ...]) -> torch.Tensor:
    wanted = torch.zeros(len(cases), len(causes))
    for row, case in enumerate(cases):
        wanted[row, causes.index(case.cause)] = 1.0
        for cause in case.also:
            wanted[row, causes.index(cause)] = ALSO
    return wanted / wanted.sum(1, keepdim=True)


def _logistic(rows: list[list[float]], right: list[float], begin: tuple[float, ...]) -> tuple[float, ...]:
    """Weights that turn the rows into log odds of being right; `begin` if there are no rows."""
    weights = torch.tensor(begin, requires_grad=True)
    if not rows:
        return begin
    present, wanted = torch.tensor(rows), torch.tensor(right)
    optimizer = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        lost = torch.nn.functional.binary_cross_entropy_with_logits(present @ weights, wanted)
        lost = lost + DECAY * (weights - torch.tensor(begin)).square().sum()
        lost.backward()
        return lost

    optimizer.step(loss)
    return tuple(weights.tolist())


def _bins(answers: Sequence[tuple[float, float]]) -> str:
    """For each bin of sureness, how sure the answers in it were, and how often they were right."""
    bins: list[list[tuple[float, float]]] = [[] for _ in range(BINS)]
    for one, hit in answers:
        bins[min(int(one * BINS), BINS - 1)].append((one, hit))
    said = [
        f"{sum(one for one, _ in rows) / len(rows):.1%} sure, {sum(hit for _, hit in rows) / len(rows):.1%} right"
        f" of {len(rows)}"
        for rows in bins
        if rows
    ]
    return "; ".join(said)


def table(model: Model, manifest: dict[str, str]) -> str:
    """The table: lines of the manifest, an empty line, and a line for each feature: rarity, and place:weight."""
    lines = [f"{name}\t{said}" for name, said in manifest.items()]
    lines.append(f"causes\t{' '.join(model.causes)}")
    lines.append(f"bias\t{' '.join(str(_hundredths(number)) for number in model.bias.tolist())}")
    lines.append(f"certainty\t{' '.join(str(_hundredths(number)) for number in model.certainty)}")
    lines.append(f"shown\t{' '.join(str(_hundredths(number)) for number in model.shown)}")
    lines.append("")
    for (name, rarity), weights in zip(model.rarity.items(), model.weights.tolist(), strict=True):
        whole = [(place, _hundredths(weight * _of(name, BLOCKS))) for place, weight in enumerate(weights)]
        numbers = [str(_hundredths(rarity)), *(f"{place}:{number}" for place, number in whole if number)]
        lines.append(f"{name}\t{' '.join(numbers)}")
    return "\n".join(lines) + "\n"


def _hundredths(number: float) -> int:
    return round(number * wording.SCALE)


if __name__ == "__main__":
    raise SystemExit(main())
