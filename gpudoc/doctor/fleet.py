"""Several machines side by side: what differs, and which one is the odd one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpudoc.doctor.model import Finding, Observation, Remedy, Report, Severity, observe
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Fact, Gpu, Machine
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
    rank: dict[Severity, int] = {"broken": 0, "warning": 1, "info": 2}
    found.sort(key=lambda f: (rank[f.severity], -f.confidence))
    odd = Counter(o.value.split(":")[0] for f in found for o in f.evidence if o.fact == "odd one")
    summary = tuple(
        Observation("odd one", f"{name} ({count} differences)", "fleet") for name, count in odd.most_common(3)
    )
    return Report(
        source="fleet",
        verdict="broken" if any(f.severity == "broken" for f in found) else "warning" if found else "healthy",
        findings=tuple(found),
        passed=tuple(fact for fact, _, _ in _FACTS if fact not in {f.title.split(" differs")[0] for f in found}),
        skipped=(),
        crashed=(),
        machine=Machine(),
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
    for fact, read, severity in _FACTS:
        values = {name: text for name, machine in machines.items() if (text := read(machine)) is not None}
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
        who = ", ".join(difference.odd[:3]) + (
            f" and {len(difference.odd) - 3} more" if len(difference.odd) > 3 else ""
        )
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


def _verdicts(names: Sequence[str], reports: Sequence[Report]) -> list[Finding]:
    found = []
    for name, report in zip(names, reports, strict=True):
        root = next((f for f in report.findings if f.severity == "broken"), None)
        if root is not None:
            found.append(
                Finding(
                    id=root.id,
                    severity="broken",
                    confidence=root.confidence,
                    title=f"{name}: {root.title}",
                    why=root.why,
                    evidence=(observe("odd one", f"{name}: {root.title}", name), *root.evidence[:2]),
                    fix=root.fix,
                    url=root.url,
                )
            )
    return found


def _text(fact: Fact[object]) -> str | None:
    return None if isinstance(fact, Absent) else str(fact)


def _pair(fact: Fact[tuple[int, int]]) -> str | None:
    return None if isinstance(fact, Absent) else f"{fact[0]}.{fact[1]}"


def _per_gpu(read: Callable[[Gpu], str | None]) -> Callable[[Machine], str | None]:
    def of(machine: Machine) -> str | None:
        if isinstance(machine.gpus, Absent):
            return None
        values = [text for gpu in machine.gpus if (text := read(gpu)) is not None]
        if not values:
            return None
        counts = Counter(values)
        return ", ".join(f"{n} x {text}" if len(machine.gpus) > 1 else text for text, n in sorted(counts.items()))

    return of


def _size(fact: Fact[int], step: int = GIB) -> str | None:
    # machines of one kind differ by some MiB of firmware: whole steps compare, the rest is noise
    return None if isinstance(fact, Absent) else format_bytes(round(fact / step) * step)


def _package(name: str) -> Callable[[Machine], str | None]:
    def of(machine: Machine) -> str | None:
        packages = machine.python.packages
        if isinstance(packages, Absent):
            return None
        return next((p.version for p in packages if p.name == name), None)

    return of


def _link(gpu: Gpu) -> str | None:
    width = gpu.link.width
    most = gpu.link.generation_max
    return (
        None if isinstance(width, Absent) else f"x{width}" + ("" if isinstance(most, Absent) else f" up to Gen{most}")
    )


_FACTS: tuple[tuple[str, Callable[[Machine], str | None], Severity], ...] = (
    ("number of GPUs", lambda m: None if isinstance(m.gpus, Absent) else str(len(m.gpus)), "broken"),
    ("GPU", _per_gpu(lambda g: _text(g.name)), "warning"),
    ("GPU memory", _per_gpu(lambda g: _size(g.memory_total_bytes)), "warning"),
    ("PCIe link", _per_gpu(_link), "warning"),
    ("top SM clock", _per_gpu(lambda g: _text(g.sm_clock_max_mhz)), "warning"),
    ("power limit", _per_gpu(lambda g: _text(g.power_limit_w)), "warning"),
    ("persistence mode", _per_gpu(lambda g: _text(g.persistence)), "info"),
    ("compute mode", _per_gpu(lambda g: _text(g.compute_mode)), "warning"),
    ("ECC", _per_gpu(lambda g: _text(g.ecc_enabled)), "warning"),
    ("MIG", _per_gpu(lambda g: _text(g.mig_enabled)), "warning"),
    ("active NVLinks", _per_gpu(lambda g: _text(g.nvlink_active)), "warning"),
    ("driver", lambda m: _text(m.driver.module_version) or _text(m.driver.library_version), "warning"),
    ("driver's CUDA", lambda m: _pair(m.driver.cuda_version), "info"),
    ("torch", lambda m: _text(m.torch.version), "warning"),
    ("torch's CUDA", lambda m: _pair(m.torch.cuda_version), "warning"),
    ("cuDNN", lambda m: _text(m.torch.cudnn_version), "warning"),
    ("NCCL package", _package("nvidia-nccl-cu12"), "warning"),
    ("NCCL package (CUDA 13)", _package("nvidia-nccl-cu13"), "warning"),
    ("Python", lambda m: _text(m.python.version), "warning"),
    ("distribution", lambda m: _text(m.host.distribution), "info"),
    ("kernel", lambda m: _text(m.host.kernel), "info"),
    ("CPU", lambda m: _text(m.host.cpu_model), "warning"),
    ("usable CPUs", lambda m: _text(m.host.cpus_usable), "warning"),
    ("memory", lambda m: _size(m.host.memory_total_bytes, 4 * GIB), "warning"),
    ("shared memory", lambda m: _size(m.host.shm_total_bytes), "warning"),
    ("open files limit", lambda m: _text(m.host.open_files_limit), "info"),
    ("locked memory limit", lambda m: _text(m.host.locked_memory_limit_bytes), "info"),
    ("memory limit of the container", lambda m: _size(m.container.memory_limit_bytes), "warning"),
    ("CPU governor", lambda m: _text(m.host.cpu_governor), "info"),
)
