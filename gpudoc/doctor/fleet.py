"""Several machines side by side: what differs, and which one is the odd one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudoc.doctor.model import RANK, Finding, Observation, Remedy, Report, Severity, observe
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Link, Machine, fact_at
from gpudoc.units import GIB, format_bytes

# from this many machines on, the one that differs from all others can be told
_ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact that is not the same everywhere: its values by machine, the usual value, and who is odd."""

    fact: str
    values: Mapping[str, str]
    usual: str | None
    odd: tuple[str, ...]


def compare(reports: Sequence[tuple[str, Report]]) -> Report:
    """What differs between the machines of these named reports, the heaviest difference first."""
    if len(reports) < 2:
        raise GpudocError("one report is nothing to compare with", hint="gpudoc doctor a.json b.json")
    names = _unique([name for name, _ in reports])
    machines = {name: report.machine for name, (_, report) in zip(names, reports, strict=True)}
    found = [_finding(d, weight) for d, weight in _differences(machines)]
    found += _verdicts(names, [report for _, report in reports])
    found.sort(key=lambda f: (RANK[f.severity], -f.confidence))
    odd = Counter(o.value.split(":")[0] for f in found for o in f.evidence if o.fact == "odd one")
    summary = tuple(
        Observation("odd one", f"{name} ({count} differences)", "fleet") for name, count in odd.most_common(3)
    )
    return Report(
        source="fleet",
        verdict="broken" if any(f.severity == "broken" for f in found) else "warning" if found else "healthy",
        findings=tuple(found),
        passed=tuple(fact for fact, *_ in _FACTS if fact not in {f.title.split(" differs")[0] for f in found}),
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


def _differences(machines: Mapping[str, Machine]) -> list[tuple[Difference, Severity]]:
    found: list[tuple[Difference, Severity]] = []
    for fact, paths, severity, step in _FACTS:
        values = {name: text for name, machine in machines.items() if (text := _told(machine, paths, step)) is not None}
        if len(set(values.values())) < 2:
            continue
        counts = Counter(values.values()).most_common()
        clear = len(values) >= _ENOUGH and counts[0][1] > len(values) / 2
        usual = counts[0][0] if clear else None
        odd = tuple(name for name, text in values.items() if clear and text != usual)
        found.append((Difference(fact=fact, values=values, usual=usual, odd=odd), severity))
    return found


def _finding(difference: Difference, severity: Severity) -> Finding:
    groups: dict[str, list[str]] = {}
    for name, text in difference.values.items():
        groups.setdefault(text, []).append(name)
    if difference.usual is not None:
        shown = [observe("odd one", f"{n}: {difference.values[n]}", "") for n in difference.odd[:5]]
        shown.append(observe("the others", difference.usual, f"{len(groups[difference.usual])} machines"))
        more = f" and {len(difference.odd) - 3} more" if len(difference.odd) > 3 else ""
        who = f"{', '.join(difference.odd[:3])}{more}"
        title = f"{difference.fact} differs: {who}"
    else:
        shown = [observe(difference.fact, text, ", ".join(names[:4])) for text, names in list(groups.items())[:5]]
        title = f"{difference.fact} differs: {len(groups)} values on {len(difference.values)} machines"
    share = len(difference.odd) / len(difference.values) if difference.values else 0.5
    return Finding(
        id="machines_differ",
        severity=severity,
        confidence=round(0.95 - share / 2, 3) if difference.usual is not None else 0.6,
        title=title,
        why="Ranks of one job wait for the slowest and need the same software; one odd machine holds all others back.",
        evidence=tuple(shown),
        fix=(Remedy(say="Make the odd machine like the others, or leave it out of the job."),),
    )


def _verdicts(names: Sequence[str], reports: Sequence[Report]) -> Iterator[Finding]:
    for name, report in zip(names, reports, strict=True):
        root = next((f for f in report.findings if f.severity == "broken"), None)
        if root is not None:
            title = f"{name}: {root.title}"
            evidence = (observe("odd one", title, name), *root.evidence[:2])
            yield replace(root, title=title, evidence=evidence, explains=(), cards=())


def _told(machine: Machine, paths: str, step: int) -> str | None:
    """The first of the facts at these paths that the machine tells, as text; None when it tells none."""
    return next((text for path in paths.split(" or ") if (text := _read(machine, path, step)) is not None), None)


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
            # machines of one kind differ by some MiB of firmware: whole steps compare, the rest is noise
            return format_bytes(round(fact / step) * step)
        case (major, minor):
            return f"{major}.{minor}"
        case Link(width=int() as width, generation_max=most):
            return f"x{width}" + ("" if isinstance(most, Absent) else f" up to Gen{most}")
        case Link():
            return None
    return str(fact)


# name, path of the fact, how bad a difference is, and the step to which it is rounded
_FACTS: tuple[tuple[str, str, Severity, int], ...] = (
    ("number of GPUs", "gpus", "broken", 0),
    ("GPU", "gpus.name", "warning", 0),
    ("GPU memory", "gpus.memory_total_bytes", "warning", GIB),
    ("PCIe link", "gpus.link", "warning", 0),
    ("top SM clock", "gpus.sm_clock_max_mhz", "warning", 0),
    ("power limit", "gpus.power_limit_w", "warning", 0),
    ("persistence mode", "gpus.persistence", "info", 0),
    ("compute mode", "gpus.compute_mode", "warning", 0),
    ("ECC", "gpus.ecc_enabled", "warning", 0),
    ("MIG", "gpus.mig_enabled", "warning", 0),
    ("active NVLinks", "gpus.nvlink_active", "warning", 0),
    ("driver", "driver.module_version or driver.library_version", "warning", 0),
    ("driver's CUDA", "driver.cuda_version", "info", 0),
    ("torch", "torch.version", "warning", 0),
    ("torch's CUDA", "torch.cuda_version", "warning", 0),
    ("cuDNN", "torch.cudnn_version", "warning", 0),
    ("NCCL package", "packages.nvidia-nccl-cu12", "warning", 0),
    ("NCCL package (CUDA 13)", "packages.nvidia-nccl-cu13", "warning", 0),
    ("Python", "python.version", "warning", 0),
    ("distribution", "host.distribution", "info", 0),
    ("kernel", "host.kernel", "info", 0),
    ("CPU", "host.cpu_model", "warning", 0),
    ("usable CPUs", "host.cpus_usable", "warning", 0),
    ("memory", "host.memory_total_bytes", "warning", 4 * GIB),
    ("shared memory", "host.shm_total_bytes", "warning", GIB),
    ("open files limit", "host.open_files_limit", "info", 0),
    ("locked memory limit", "host.locked_memory_limit_bytes", "info", 0),
    ("memory limit of the container", "container.memory_limit_bytes", "warning", GIB),
    ("CPU governor", "host.cpu_governor", "info", 0),
)
