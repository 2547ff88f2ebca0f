"""What `gpudoc bench` measures beside the ceilings that gpudoc computes for this card, and what bench itself doubts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.gpu_check.model import Comparison, Result

BENCH = ("bench", "--quick", "--json", "--device", "cuda:0", "--only", "copies,device_memory,matmul")
# what distinguishes rows of one name here; the best of each is compared
PARTS = ("host", "dtype", "mode")
# a ceiling is passed by a fault of ours only; below the share a card is not what its name says, or is slowed down
LOW, HIGH = 0.5, 1.02
# a burst of the GPU's own memory or products; latencies and the host's memory have their own reasons
JUDGED = ("h2d", "d2h", "device_copy", "device_read", "device_write", "matmul")


def compare(rows: Iterable[Mapping[str, object]]) -> Result:
    """The best row of each kind against its ceiling; refused rows and slowed clocks are failures."""
    result = Result()
    best: dict[str, Mapping[str, object]] = {}
    for row in rows:
        parameters = row["parameters"]
        assert isinstance(parameters, Mapping)
        if row["name"] not in JUDGED or parameters.get("host") == "pageable":
            continue
        name = " ".join([str(row["name"]), *(str(parameters[part]) for part in PARTS if part in parameters)])
        doubts = row["doubts"]
        assert isinstance(doubts, Sequence)
        for doubt in doubts:
            if doubt["id"] in ("impossible", "throttled", "shared_gpu"):
                result.failures.append(f"bench doubts {name}: {doubt['text']}")
        if row["value"] is not None and (name not in best or value_of(row) > value_of(best[name])):
            best[name] = row
    for name, row in best.items():
        ceiling = row["ceiling"]
        guessed = float(ceiling) if isinstance(ceiling, (int, float)) else None
        unit = str(row["unit"])
        result.comparisons.append(
            Comparison(name=name, guessed=guessed, measured=value_of(row), unit=unit, low=LOW, high=HIGH)
        )
        if guessed is None:
            result.facts[f"ceiling of {name}"] = str(row["ceiling_from"])
    result.failures = list(dict.fromkeys(result.failures))
    return result


def value_of(row: Mapping[str, object]) -> float:
    """The row's median in its unit."""
    return float(str(row["value"]))


def main() -> None:
    done = subprocess.run([sys.executable, "-m", "gpudoc", *BENCH], capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr or f"gpudoc bench ended with exit status {done.returncode} without a message")
    document = json.loads(done.stdout)
    result = compare(document["measurements"])
    if not result.comparisons:
        result.failures.append("bench measured nothing that has to do with a GPU")
    result.failures += [f"bench left out {one['case']}: {one['because']}" for one in document["not_measured"]]
    print(result.to_line())


if __name__ == "__main__":
    main()
