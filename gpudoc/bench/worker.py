"""The measuring process: imports torch once, then forks one fresh process per round; writes JSON lines to stdout.

The parent never measures, so figures survive a hanging driver, a card that falls off the bus, or a kill.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from gpudoc.bench.cases import cuda_soak
from gpudoc.bench.cases.catalog import cases_for
from gpudoc.bench.cpu_clock import measure_clock_ghz
from gpudoc.bench.documents import reading_to_json
from gpudoc.bench.gpu import CudaGpu
from gpudoc.bench.model import Case
from gpudoc.bench.sampling import MIN_SAMPLES, Bench, SamplingPlan, fewest_samples
from gpudoc.process.ending import how_it_ended
from gpudoc.process.imports import uncollected
from gpudoc.process.lifetime import die_with_parent

# a round with less than this share of its planned time is left out, unless MIN_SAMPLES needs it
MIN_ROUND_SHARE = 0.2


def plan_to_json(plan: SamplingPlan) -> str:
    """The plan as one line for the worker's stdin."""
    return json.dumps(asdict(plan))


def plan_from_json(text: str) -> SamplingPlan:
    """The plan that `plan_to_json` wrote."""
    values = json.loads(text)
    for name in ("only", "cpu_flags", "bind_cpus"):
        values[name] = tuple(values[name])
    return SamplingPlan(**values)


def main() -> None:
    """Read a plan from stdin, run all rounds, write one JSON object per line to stdout."""
    started = time.monotonic()
    plan = plan_from_json(sys.stdin.readline())
    die_with_parent(plan.parent_pid)
    if plan.bind_cpus:
        # before torch starts its threads and before memory is used, so that both stay on the GPU's node
        os.sched_setaffinity(0, plan.bind_cpus)
    tell({"event": "environment", "values": describe_torch()})
    # a slow import of torch reduces the time for measuring, but by at most half
    now = time.monotonic()
    end = max(started + plan.budget_s, now + plan.budget_s / 2)
    needed = -(-MIN_SAMPLES // fewest_samples(plan.rounds))
    for index in range(plan.rounds):
        left = end - time.monotonic()
        if index >= needed and left < MIN_ROUND_SHARE * (end - now) / plan.rounds:
            tell({"event": "absent", "case": f"process {index + 1} of {plan.rounds}", "because": "no time was left"})
            continue
        own = os.getpid()
        child = os.fork()
        if child == 0:
            die_with_parent(own)
            os._exit(_run_round(plan, index, left / (plan.rounds - index)))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            because = f"round {index + 1} {how_it_ended(os.waitstatus_to_exitcode(status))}"
            tell({"event": "lost", "round": index, "because": because})


def describe_torch() -> dict[str, str]:
    """Version and build of the measuring torch."""
    with uncollected():
        import torch

    return {"torch": str(torch.__version__), "torch_cuda": str(torch.version.cuda or "none")}


def tell(message: Mapping[str, object]) -> None:
    """Send one line to the parent at once."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def share_of_time(case: Case, rest: Sequence[Case], left_s: float) -> float:
    """Seconds for `case` before it and the `rest` run: if a case overruns, all later ones get less time."""
    return max(0.0, left_s) * case.share / (case.share + sum(one.share for one in rest))


def _run_round(plan: SamplingPlan, index: int, round_s: float) -> int:
    bench = Bench(plan=plan, round=index, clock_ghz=measure_clock_ghz, is_alive=lambda: tell({"event": "alive"}))
    if plan.device != "cpu":
        # only here, after the fork, because a CUDA context does not survive one
        bench.gpu = device = CudaGpu(int(plan.device.partition(":")[2]))
        # the driver counts all GPUs, but CUDA_VISIBLE_DEVICES may hide some
        bench.plan = replace(plan, num_gpus=bench.gpu.traits.count)
        tell({"event": "gpu", "values": asdict(bench.gpu.traits)})
        device.wake()
    wanted = [case for case in cases_for(plan.device) if not plan.only or case.name in plan.only]
    end = time.monotonic() + round_s
    present = _present(wanted, bench) + ([cuda_soak.CASE] if plan.soak_s else [])
    for place, case in enumerate(present):
        tell({"event": "begin", "case": case.name, "meaning": case.meaning, "round": index})
        bench.budget_s = share_of_time(case, present[place + 1 :], end - time.monotonic())
        try:
            for reading in case.run(bench):
                tell({"event": "reading", "values": reading_to_json(reading)})
        except Exception as error:  # one broken case must not take the others with it
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().splitlines()[0] if str(error).strip() else ""
            where = f"{Path(last.filename).name}:{last.lineno}"
            tell({"event": "failed", "case": case.name, "because": f"{type(error).__name__}: {text} ({where})"})
            if not _device_answers(bench):
                tell({"event": "lost", "round": index, "because": f"the GPU stopped answering during {case.name}"})
                return 0
        for what, because in bench.left_out:
            tell({"event": "absent", "case": what, "because": because})
        bench.left_out.clear()
    return 0


def _present(cases: Sequence[Case], bench: Bench) -> list[Case]:
    """The cases that can run here; the others are reported with the reason."""
    present = []
    for case in cases:
        reason = case.absent_because(bench)
        if reason:
            tell({"event": "absent", "case": case.name, "because": reason})
        else:
            present.append(case)
    return present


def _device_answers(bench: Bench) -> bool:
    """Whether the GPU still works; a lost card or a sticky CUDA error fails everything after it."""
    if bench.gpu is None:
        return True
    try:
        bench.gpu.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main()
