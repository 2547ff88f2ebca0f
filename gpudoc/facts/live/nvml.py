"""Samples the GPUs at 10 Hz while a job runs, in a child process: a driver that hangs must not hang the watch."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from gpudoc.facts.live.nvml_counters import Counters
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import GpuMoment, GpuTrack, GpuUser
from gpudoc.process.arguments import own_python
from gpudoc.process.ending import end_process

RATE_HZ = 10.0
# NVML's own counters of PCIe traffic take 20 ms each, so they are asked once a second
EVERY_SECOND = 10
FINISH_S = 3.0

# nvml.h, nvmlClocksEventReasons
THROTTLE_BITS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}


_CALL = "from gpudoc.facts.live.nvml import look_until_stopped; look_until_stopped({})"


class GpuRecorder:
    """A child that writes one JSON line per look into a file, until it is asked to stop or its parent dies."""

    def __init__(self, output: pathlib.Path) -> None:
        self.output = output
        with output.open("wb") as lines:
            self._process = subprocess.Popen(
                own_python(_CALL.format(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def finish(self) -> Fact[tuple[GpuTrack, ...]]:
        """Stop sampling, and return the samples; absent with the reason if NVML did not answer."""
        end_process(self._process, ask=signal.SIGTERM, grace_s=FINISH_S)
        return self.read()

    def read(self) -> Fact[tuple[GpuTrack, ...]]:
        """The samples so far."""
        return parse(self.output.read_text("utf-8", "replace").splitlines())


def parse(lines: Sequence[str]) -> Fact[tuple[GpuTrack, ...]]:
    """The GPUs in the output of the child; an incomplete last line is ignored."""
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    if not rows:
        return Absent("NVML gave no answer")
    head = rows[0]
    if "error" in head:
        return Absent(str(head["error"]))
    return tuple(_track(index, gpu, rows[1:]) for index, gpu in enumerate(head["gpus"]))


def _track(index: int, gpu: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> GpuTrack:
    moments: list[GpuMoment] = []
    users: dict[int, dict[str, Any]] = {}
    for row in rows:
        look = row["gpus"][index] if index < len(row.get("gpus", ())) else {}
        moments.append(_moment(float(row["t"]), look))
        for user in look.get("users") or ():
            seen = users.setdefault(user["pid"], {"pid": user["pid"], "sm": []})
            seen["memory"] = user.get("memory")
            seen["name"] = user.get("name")
            seen["sm"] += [user["sm"]] if user.get("sm") is not None else []
    known = {f.name: gpu[f.name] for f in fields(GpuTrack) if gpu.get(f.name) is not None}
    asked = any(row["gpus"][index].get("users") is not None for row in rows if index < len(row.get("gpus", ())))
    return GpuTrack(
        **{**known, "index": index},
        users=tuple(_user(u) for u in users.values()) if asked else Absent("NVML does not list processes"),
        moments=tuple(moments),
    )


def _moment(time_s: float, look: Mapping[str, Any]) -> GpuMoment:
    known = {f.name: look[f.name] for f in fields(GpuMoment) if look.get(f.name) is not None}
    mask = look.get("throttle_mask")
    if mask is not None:
        known["throttle_reasons"] = tuple(name for bit, name in THROTTLE_BITS.items() if mask & bit)
    return GpuMoment(time_s=time_s, **known)


def _user(seen: Mapping[str, Any]) -> GpuUser:
    share = sum(seen["sm"]) / len(seen["sm"]) if seen["sm"] else Absent("not sampled")
    return GpuUser(
        pid=seen["pid"],
        memory_bytes=seen["memory"] if seen.get("memory") is not None else Absent("not given"),
        sm_percent=share,
        name=seen["name"] if seen.get("name") else Absent("not visible from here"),
    )


def look_until_stopped(parent: int) -> None:
    """The child's work: describe every GPU once, then look at each at 10 Hz while `parent` lives."""
    try:
        import pynvml as library

        pynvml: Any = library
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception as problem:  # any fault of the driver is the answer here
        _write({"error": f"NVML: {problem}"})
        return
    counters = [Counters(pynvml, handle) for handle in handles]
    described = zip(handles, counters, strict=True)
    _write({"gpus": [{**_describe(pynvml, one), "counters_absent": of_it.absent} for one, of_it in described]})
    began, count, since = time.monotonic(), 0, 0
    while os.getppid() == parent:
        slow = count % EVERY_SECOND == 0
        looks = [_look(pynvml, handle, slow, since) for handle in handles]
        if slow and count:
            looks = [{**look, **of_it.read()} for look, of_it in zip(looks, counters, strict=True)]
        _write({"t": round(time.monotonic() - began, 3), "gpus": looks})
        since = int(time.time() * 1e6) if slow else since
        count += 1
        time.sleep(max(0.0, began + count / RATE_HZ - time.monotonic()))


def _write(row: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _ask(call: Callable[[], Any]) -> Any:
    """The answer, or None: every call of NVML may be unsupported on some card."""
    try:
        return call()
    except Exception:
        return None


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _describe(nv: Any, handle: Any) -> dict[str, object]:
    memory = _ask(lambda: nv.nvmlDeviceGetMemoryInfo(handle))
    limit = _ask(lambda: nv.nvmlDeviceGetEnforcedPowerLimit(handle))
    default = _ask(lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(handle))
    return {
        "name": _text(_ask(lambda: nv.nvmlDeviceGetName(handle))),
        "memory_total_bytes": memory and memory.total,
        "sm_clock_max_mhz": _ask(lambda: nv.nvmlDeviceGetMaxClockInfo(handle, nv.NVML_CLOCK_SM)),
        "power_limit_w": limit and limit / 1000,
        "power_limit_default_w": default and default / 1000,
        "pcie_generation_max": _ask(lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "pcie_width_max": _ask(lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(handle)),
    }


def _look(nv: Any, handle: Any, slow: bool, since: int) -> dict[str, object]:
    rates = _ask(lambda: nv.nvmlDeviceGetUtilizationRates(handle))
    memory = _ask(lambda: nv.nvmlDeviceGetMemoryInfo(handle))
    power = _ask(lambda: nv.nvmlDeviceGetPowerUsage(handle))
    found: dict[str, object] = {
        "utilization_percent": rates.gpu if rates is not None else None,
        "memory_used_bytes": memory.used if memory is not None else None,
        "sm_clock_mhz": _ask(lambda: nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM)),
        "power_w": power / 1000 if power is not None else None,
        "temperature_c": _ask(lambda: nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU)),
        "throttle_mask": _ask(lambda: nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        "pcie_generation": _ask(lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_width": _ask(lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    }
    if slow:
        # nvml.h: KB per second, over the last 20 ms
        rx = _ask(lambda: nv.nvmlDeviceGetPcieThroughput(handle, nv.NVML_PCIE_UTIL_RX_BYTES))
        found["pcie_rx_bytes_per_s"] = rx * 1000.0 if rx is not None else None
        found["users"] = _users(nv, handle, since)
    return found


def _users(nv: Any, handle: Any, since: int) -> list[dict[str, object]] | None:
    processes = _ask(lambda: nv.nvmlDeviceGetComputeRunningProcesses(handle))
    if processes is None:
        return None
    shares = {s.pid: s.smUtil for s in _ask(lambda: nv.nvmlDeviceGetProcessUtilization(handle, since)) or ()}
    return [
        {"pid": p.pid, "memory": p.usedGpuMemory, "sm": shares.get(p.pid), "name": _name_of(p.pid)} for p in processes
    ]


def _name_of(pid: int) -> str | None:
    place = pathlib.Path(f"/proc/{pid}/comm")
    return place.read_text().strip() if place.exists() else None
