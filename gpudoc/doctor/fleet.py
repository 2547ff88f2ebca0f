"""Several machines side by side: the differences, and the odd machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpudoc.doctor.model import RANK, Finding, Observation, Remedy, Report, Severity, observe
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Link, Machine, fact_at
from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import read_rows
from gpudoc.units import GIB, format_bytes

# it takes at least this many machines to say which one is odd
_ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A row of compared.yaml: a fact by its name and path, and how bad a difference between machines is."""

    name: str
    fact: str
    severity: Severity = "warning"
    step_gib: int = 0


def compare(reports: Sequence[tuple[str, Report]]) -> Report:
    """The report on the differences between the machines of these named reports, the heaviest difference first."""
    if len(reports) < 2:
        raise GpudocError("one report cannot be compared: pass two or more", hint="gpudoc doctor a.json b.json")
    names = _unique([name for name, _ in reports])
    machines = {name: report.machine for name, (_, report) in zip(names, reports, strict=True)}
    facts = read_rows("compared.yaml", "facts", _Compared)
    differing = {fact.name: one for fact in facts if (one := _difference(fact, machines)) is not None}
    found = [*differing.values(), *_verdicts(names, [report for _, report in reports])]
    found.sort(key=lambda f: (RANK[f.severity], -f.confidence))
    odd = Counter(o.value.split(":")[0] for f in found for o in f.evidence if o.fact == "odd one")
    summary = tuple(
        Observation("odd one", f"{name} ({count} differences)", "fleet") for name, count in odd.most_common(3)
    )
    return Report(
        source="fleet",
        verdict="broken" if any(f.severity == "broken" for f in found) else "warning" if found else "healthy",
        findings=tuple(found),
        passed=tuple(fact.name for fact in facts if fact.name not in differing),
        unexplained=summary,
        recognised=(f"{len(names)} machines",),
    )


def _unique(names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique


def _difference(fact: _Compared, machines: Mapping[str, Machine]) -> Finding | None:
    """The finding for a fact that differs: the odd machines if they are clear, else the machines of each value."""
    told = {name: _told(machine, fact) for name, machine in machines.items()}
    values = {name: text for name, text in told.items() if text is not None}
    groups: dict[str, list[str]] = {}
    for name, text in values.items():
        groups.setdefault(text, []).append(name)
    if len(groups) < 2:
        return None
    usual = max(groups, key=lambda text: len(groups[text]))
    odd = [name for name, text in values.items() if text != usual]
    if len(values) >= _ENOUGH and len(odd) < len(values) / 2:
        shown = [observe("odd one", f"{name}: {values[name]}", "") for name in odd[:5]]
        shown.append(observe("the others", usual, f"{len(groups[usual])} machines"))
        who = f"{', '.join(odd[:3])}{f' and {len(odd) - 3} more' if len(odd) > 3 else ''}"
        confidence = round(0.95 - len(odd) / len(values) / 2, 3)
    else:
        shown = [observe(fact.name, text, ", ".join(names[:4])) for text, names in list(groups.items())[:5]]
        who = f"{len(groups)} values on {len(values)} machines"
        confidence = 0.6
    return Finding(
        id="machines_differ",
        severity=fact.severity,
        confidence=confidence,
        title=f"{fact.name} differs: {who}",
        why="Ranks of one job wait for the slowest and need the same software; one odd machine holds all others back.",
        evidence=tuple(shown),
        fix=(Remedy(say="Make the odd machine match the others, or leave it out of the job."),),
    )


def _verdicts(names: Sequence[str], reports: Sequence[Report]) -> Iterator[Finding]:
    for name, report in zip(names, reports, strict=True):
        root = next((f for f in report.findings if f.severity == "broken"), None)
        if root is not None:
            title = f"{name}: {root.title}"
            evidence = (observe("odd one", title, name), *root.evidence[:2])
            yield replace(root, title=title, evidence=evidence, explains=(), cards=())


def _told(machine: Machine, fact: _Compared) -> str | None:
    """The first known fact at the row's paths, as text; None if none is known."""
    texts = (_read(machine, path, fact.step_gib * GIB) for path in fact.fact.split(" or "))
    return next((text for text in texts if text is not None), None)


def _read(machine: Machine, path: str, step: int) -> str | None:
    part, _, rest = path.partition(".")
    if part == "packages":
        packages = machine.python.packages
        listed = () if isinstance(packages, Absent) else packages
        return next((package.version for package in listed if package.name == rest), None)
    if part != "gpus":
        return _text(fact_at(machine, path), step)
    if isinstance(machine.gpus, Absent):
        return None
    if not rest:
        return str(len(machine.gpus))
    counts = Counter(text for gpu in machine.gpus if (text := _text(fact_at(gpu, rest), step)) is not None)
    several = len(machine.gpus) > 1
    return ", ".join(f"{n} x {text}" if several else text for text, n in sorted(counts.items())) or None


def _text(fact: object, step: int) -> str | None:
    match fact:
        case Absent():
            return None
        case int() if step:
            # machines of one kind differ by some MiB of firmware, so only whole steps are compared
            return format_bytes(round(fact / step) * step)
        case (major, minor):
            return f"{major}.{minor}"
        case Link(width=int() as width, generation_max=most):
            return f"x{width}" + ("" if isinstance(most, Absent) else f" up to Gen{most}")
        case Link():
            return None
    return str(fact)
