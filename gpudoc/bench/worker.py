"""The process that measures: imports torch once, then forks one fresh process per round; speaks JSON lines on stdout.

The parent never measures, so a driver that hangs, a card that falls off or a kill takes no figure with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gpudoc.bench.cases.catalog import cases_for
from gpudoc.bench.cpu_clock import measure_clock_ghz
from gpudoc.bench.documents import reading_to_json
from gpudoc.bench.gpu import CudaGpu
from gpudoc.bench.model import Case
from gpudoc.bench.sampling import Bench, Plan

_PR_SET_PDEATHSIG = 1
# a round that got less of its planned time would only be half a round
MIN_ROUND_SHARE = 0.2


def plan_to_json(plan: Plan) -> str:
    """The plan as one line for the worker's stdin."""
    return json.dumps(asdict(plan))


def plan_from_json(text: str) -> Plan:
    """The plan that `plan_to_json` wrote."""
    values = json.loads(text)
    for name in ("only", "cpu_flags", "bind_cpus"):
        values[name] = tuple(values[name])
    return Plan(**values)


def main() -> None:
    """Read a plan from stdin, run all rounds, write one JSON object per line to stdout."""
    started = time.monotonic()
    _die_with_parent()
    plan = plan_from_json(sys.stdin.readline())
    if plan.bind_cpus:
        # before torch starts its threads and before memory is touched: both stay on the GPU's node
        os.sched_setaffinity(0, plan.bind_cpus)
    tell({"event": "environment", "values": describe_torch()})
    for index in range(plan.rounds):
        left = plan.budget_s - (time.monotonic() - started)
        if index and left < MIN_ROUND_SHARE * plan.budget_s / plan.rounds:
            tell({"event": "lost", "round": index, "because": f"round {index + 1}: no time was left for it"})
            continue
        child = os.fork()
        if child == 0:
            os._exit(_run_round(plan, index, left / (plan.rounds - index)))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            tell({"event": "lost", "round": index, "because": f"round {index + 1} was ended by {name}"})


def describe_torch() -> dict[str, str]:
    """Version and build of the torch that measures."""
    import torch

    return {"torch": str(torch.__version__), "torch_cuda": str(torch.version.cuda or "none")}


def tell(message: Mapping[str, object]) -> None:
    """One line to the parent, at once."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def budgets(cases: Sequence[Case], bench: Bench, round_s: float) -> list[tuple[Case, float, str]]:
    """Each case with its seconds and, where it cannot run, the reason (its time goes to the others)."""
    reasons = [case.absent_because(bench) for case in cases]
    total = sum(case.share for case, reason in zip(cases, reasons, strict=True) if not reason) or 1.0
    return [
        (case, 0.0 if reason else round_s * case.share / total, reason)
        for case, reason in zip(cases, reasons, strict=True)
    ]


def _run_round(plan: Plan, index: int, round_s: float) -> int:
    _die_with_parent()
    bench = Bench(plan=plan, round=index)
    if plan.device == "cpu":
        bench.clock_ghz = measure_clock_ghz
    else:
        # only here, after the fork: a CUDA context does not survive one
        bench.gpu = CudaGpu(int(plan.device.partition(":")[2]))
        tell({"event": "gpu", "values": asdict(bench.gpu.traits)})
    wanted = [case for case in cases_for(plan.device) if not plan.only or case.name in plan.only]
    for case, seconds, reason in budgets(wanted, bench, round_s):
        if reason:
            tell({"event": "absent", "case": case.name, "because": reason})
            continue
        tell({"event": "begin", "case": case.name, "meaning": case.meaning, "round": index})
        bench.budget_s = seconds
        try:
            for reading in case.run(bench):
                tell({"event": "reading", "values": reading_to_json(reading)})
        except Exception as error:  # one broken case must not take the others with it
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().splitlines()[0] if str(error).strip() else ""
            place = f"{Path(last.filename).name}:{last.lineno}"
            tell({"event": "failed", "case": case.name, "because": f"{type(error).__name__}: {text} ({place})"})
            if not _device_answers(bench):
                tell({"event": "lost", "round": index, "because": f"the GPU stopped answering during {case.name}"})
                return 0
        for what, because in bench.left_out:
            tell({"event": "absent", "case": what, "because": because})
        bench.left_out.clear()
    return 0


def _device_answers(bench: Bench) -> bool:
    """Whether the GPU still works; a lost card or a sticky CUDA error fails everything after it."""
    if bench.gpu is None:
        return True
    try:
        bench.gpu.synchronize()
    except RuntimeError:
        return False
    return True


def _die_with_parent() -> None:
    """A measuring process whose parent was killed would go on loading the machine."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
