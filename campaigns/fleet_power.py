"""What the verdict over a fleet finds and whom it accuses: 1,000 simulated nodes of 8 GPUs with planted faults.

    python campaigns/fleet_power.py --fleets 12 --out records/DATE-fleet-power.md

A fault "of 4 σ" lies 4 standard deviations of the healthy spread below the median, before the noise of measuring. Each
fleet is measured, what looks odd is measured a second time, and only what is then drained counts as found. The spread
is stated in gpudoc/fleet/scores.py (SPREADS) with its source; everything else of the simulation is in
tests/fleet/simulated.py.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from gpudoc.fleet.documents import save_record  # noqa: E402
from gpudoc.fleet.record import Spot  # noqa: E402
from gpudoc.fleet.scores import SPREADS  # noqa: E402
from gpudoc.fleet.verdict import judge  # noqa: E402
from tests.fleet.simulated import NOISE, PARTNERS, REPEATS, SAMPLES, Plan, again, build  # noqa: E402

SIGMAS = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0)
NODE_SIGMAS = (1.0, 2.0, 3.0)
WRONG_SHARES = (1 / 64, 1 / 16, 1 / 4, 1.0)
OF_EACH = 4


@dataclass
class Tally:
    """Of each kind and strength of fault how many were planted and drained, and the healthy nodes that were."""

    planted: Counter[tuple[str, float]] = field(default_factory=Counter)
    found: Counter[tuple[str, float]] = field(default_factory=Counter)
    false: int = 0
    healthy_gpus: int = 0
    fleets: int = 0
    limit: float = 0.0


def plan_of(seed: int, nodes: int, gpus: int, **more: object) -> tuple[Plan, dict[int, tuple[str, float]]]:
    """A fleet with every fault of every strength, each on a node of its own, and what lies on which node."""
    places = iter(range(1, nodes))
    planted: dict[int, tuple[str, float]] = {}
    slow, links, ill, corrupt = {}, {}, {}, {}
    for _ in range(OF_EACH):
        for sigma in SIGMAS:
            spot = Spot(next(places), seed % gpus)
            slow[spot], planted[spot.node] = sigma, ("slow GPU", sigma)
            spot = Spot(next(places), (seed + 1) % gpus)
            links[spot], planted[spot.node] = sigma, ("bad link of a rail", sigma)
        for share in WRONG_SHARES:
            spot = Spot(next(places), (seed + 2) % gpus)
            corrupt[spot], planted[spot.node] = share, ("corrupting GPU", share)
    for sigma in NODE_SIGMAS:
        node = next(places)
        ill[node], planted[node] = sigma, ("slow node", sigma)
    plan = Plan(nodes=nodes, gpus=gpus, seed=seed, slow=slow, links=links, ill_nodes=ill, corrupt=corrupt, **more)
    return plan, planted


def run(seeds: range, nodes: int, gpus: int, **more: object) -> Tally:
    """Measure, measure again what looks odd, judge, and count."""
    tally = Tally()
    for seed in seeds:
        plan, planted = plan_of(seed, nodes, gpus, **more)
        record, truth = build(plan)
        verdict = judge(again(record, truth))
        drained = set(verdict.drained)
        tally.planted.update(planted.values())
        tally.found.update(planted[node] for node in drained & set(planted))
        tally.false += len(drained - set(planted))
        tally.healthy_gpus += (nodes - len(planted)) * gpus
        tally.fleets += 1
        tally.limit = verdict.limit
        print(
            f"fleet {seed} {more or ''}: {len(drained)} drained, {len(drained - set(planted))} of them healthy",
            flush=True,
        )
    return tally


def cost(nodes: int, gpus: int) -> dict[str, float]:
    """Seconds and memory of `gpudoc doctor fleet.json` in a separate process, reading the file included."""
    plan, _ = plan_of(0, nodes, gpus)
    with tempfile.TemporaryDirectory() as folder:
        record, truth = build(plan)
        path = save_record(Path(folder) / "fleet.json", again(record, truth))
        size = path.stat().st_size
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gpudoc", "doctor", str(path)], check=False, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "rss": after.ru_maxrss / 1024, "bytes": size, "load": os.getloadavg()[0]}


def table(tally: Tally, kind: str, name: str) -> str:
    """One kind of fault with the share that was drained at each strength."""
    strengths = sorted({strength for one, strength in tally.planted if one == kind})
    shares = [tally.found[kind, s] / tally.planted[kind, s] for s in strengths]
    head = [
        f"{kind}, {name} ({tally.planted[kind, strengths[0]]} each)",
        *(f"{strength:.3g}" for strength in strengths),
    ]
    rows = [head, ["---"] * len(head), ["drained", *(f"{share:.0%}" for share in shares)]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=12)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size = (options.nodes, options.gpus)
    few = max(1, options.fleets // 4)
    plain = run(range(options.fleets), *size)
    whole = run(range(100, 100 + few), *size, shared=1.0)
    tails = run(range(200, 200 + few), *size, tails=8.0)
    spent = cost(*size)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    command = f"`python campaigns/fleet_power.py --fleets {options.fleets}`"
    spreads = ", ".join(f"{kind} {spread:.1%}" for kind, spread in SPREADS.items())
    false = [
        f"| {name} | {one.healthy_gpus:,} | {one.false} | {one.false / one.healthy_gpus * 8000:.2f} |"
        for name, one in (
            ("normal", plain),
            ("normal, all figures of a part move together", whole),
            ("Student's t, 8 degrees of freedom: heavier tails than stated", tails),
        )
    ]
    made = (
        f"{datetime.date.today()}, commit {commit.stdout.strip()}, Python {platform.python_version()}, {command}. "
        "No GPU was measured: this says what the statistics do, not how real fleets spread."
    )
    simulated = (
        f"Spread between healthy GPUs, relative standard deviations: {spreads}. compute is the 8 % of Sinha et al. "
        "(SC22, arXiv 2208.11035, abstract), read as the whiskers of a box plot (5.4 standard deviations); the others "
        "are assumptions. Of the variance of one part of a GPU 80 % is common to all its figures; a sample's noise is "
        f"{NOISE:.1%}, {SAMPLES} samples a reading, {PARTNERS} partners a link, {REPEATS} repeats of each of two "
        "products, cold and hot, wrong only when hot. The second measurement has noise of its own and the same GPUs."
    )
    found = (
        "Drained after a second measurement. A strength of 4 is 4 standard deviations below the median; of a node, by "
        "which all its GPUs are moved; of a corrupting GPU, the share of its hot repeats that are wrong."
    )
    together = (
        f"The threshold was {plain.limit:.2f} σ. When all figures of a part move together (nothing to average), "
        "the power is:"
    )
    paid = (
        f"`gpudoc doctor fleet.json`, {spent['bytes'] / 1e6:.1f} MB, reading included: {spent['wall']:.1f} s "
        f"({spent['cpu']:.1f} s of CPU) and {spent['rss']:.0f} MiB, with a load average of {spent['load']:.1f} on "
        f"{os.cpu_count()} cores."
    )
    blocks = [
        f"# The verdict over a fleet: {options.nodes} nodes of {options.gpus} GPUs, simulated",
        made,
        simulated,
        "## Found",
        found,
        *(table(plain, kind, "σ") for kind in ("slow GPU", "bad link of a rail")),
        table(plain, "slow node", "σ of its GPUs"),
        table(plain, "corrupting GPU", "wrong share"),
        "## Accused for nothing",
        "\n".join(["| spread | healthy GPUs | healthy nodes drained | per 8,000 GPUs |", "|---|---|---|---|", *false]),
        together,
        *(table(whole, kind, "σ") for kind in ("slow GPU", "bad link of a rail")),
        "## Cost",
        paid,
    ]
    text = "\n\n".join(blocks) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
