"""With the card's power limit or its clocks lowered, `gpudoc bench` names the reason; the runner puts both back.

    python -m benchmarks.gpu_check.checks.limits power
    python -m benchmarks.gpu_check.checks.limits clocks

As root, on a card of one's own: `make gpu-check` leaves it out unless --change-limits is given.
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.gpu_check.model import Result

BENCH = (sys.executable, "-m", "gpudoc", "bench", "--quick", "--json", "--device", "cuda:0", "--only", "matmul")
# what a slow row's doubts or verdicts are expected to speak of
WORDS = {"power": ("power",), "clocks": ("clock",)}


def smi(*arguments: str) -> str:
    """nvidia-smi's answer; its own words as the error where it refuses."""
    done = subprocess.run(["nvidia-smi", "-i", "0", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"nvidia-smi {' '.join(arguments)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()


def lower(what: str) -> str:
    """Lower the limit, and say to what."""
    if what == "power":
        watts = smi("--query-gpu=power.min_limit", "--format=csv,noheader,nounits")
        smi("-pl", watts)
        return f"{watts} W"
    most = int(smi("--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"))
    smi("-lgc", f"{most // 3},{most // 3}")
    return f"{most // 3} MHz"


def main() -> None:
    (what,) = sys.argv[1:]
    result = Result(facts={"lowered to": lower(what)})
    done = subprocess.run(BENCH, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    said = json.dumps([document.get("verdicts"), [row["doubts"] for row in document["measurements"]]]).lower()
    if not any(word in said for word in WORDS[what]):
        result.failures.append(f"the card's {what} were lowered, and bench does not name it")
    print(result.to_line())


if __name__ == "__main__":
    main()
