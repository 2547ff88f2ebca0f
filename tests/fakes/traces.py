"""Traces with planted steps: a host that loads, launches, reads and computes, and a GPU that follows it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MAIN = 4242
LOADING = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
IN_MAIN = LOADING.replace("MultiProcessing", "SingleProcess")


@dataclass
class Step:
    """One step in microseconds: loading, then kernels launched one after another, then what the host does besides."""

    data: float = 0.0
    loader: str = LOADING
    kernels: int = 10
    kernel: float = 1000.0
    launch: float = 20.0
    python: float = 0.0
    reads: bool = False
    talk: float = 0.0
    hidden_talk: float = 0.0
    copy: float = 0.0


@dataclass
class Planted:
    """Events in Kineto's form; the host goes on to the next step while the GPU works."""

    events: list[dict] = field(default_factory=list)
    host: float = 1_000_000.0
    gpu: float = 1_000_000.0
    called: int = 0
    rank: int | None = None

    def span(self, cat: str, name: str, start: float, length: float, tid: object = MAIN, **args: object) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": MAIN, "tid": tid, "ts": start, "dur": length, "args": args}
        )

    def work(self, cat: str, name: str, length: float, launch: float, *, beside: float | None = None) -> None:
        """An operator that launches work of this length, at the end of the queue or at a time of its own."""
        self.called += 1
        self.span("cpu_op", "aten::linear", self.host, launch)
        asked = self.host + launch / 2
        self.span("cuda_runtime", "cudaLaunchKernel", asked, 2.0, correlation=self.called)
        self.host += launch
        start = max(self.gpu, asked + 5.0) if beside is None else beside
        self.span(cat, name, start, length, tid=7, device=0, stream=7, correlation=self.called)
        if beside is None:
            self.gpu = start + length

    def add(self, number: int, step: Step) -> None:
        began = self.host
        if step.data:
            self.span("user_annotation", step.loader, self.host, step.data)
            self.host += step.data
        if step.copy:
            self.work("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", step.copy, step.launch)
        for _ in range(step.kernels):
            self.work("kernel", "ampere_sgemm_128x64", step.kernel, step.launch)
        if step.hidden_talk:
            self.work(
                "kernel", "ncclDevKernel_AllReduce", step.hidden_talk, 1.0, beside=self.gpu - step.hidden_talk - 1
            )
        if step.talk:
            self.work("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", step.talk, step.launch)
        if step.reads:
            place = self.host
            self.span("python_function", "train.py(41): train_one_epoch", place - 1, self.gpu - place + 30)
            self.span("cpu_op", "aten::item", place, max(1.0, self.gpu - place + 10))
            self.span("cuda_runtime", "cudaStreamSynchronize", place, max(1.0, self.gpu - place + 10))
            self.host = max(self.host, self.gpu + 20)
        self.host += step.python
        self.span("user_annotation", f"ProfilerStep#{number}", began, self.host - began)

    def write(self, path: Path, *, cut: int | None = None) -> Path:
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}
        if self.rank is not None:
            head["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": 8}
        text = json.dumps({**head, "traceEvents": self.events, "traceName": "x"}, indent=1)
        path.write_text(text if cut is None else text[:cut])
        return path


def planted(step: Step, steps: int = 5) -> Planted:
    """A trace of equal steps."""
    trace = Planted()
    for number in range(steps):
        trace.add(number, step)
    return trace


def write_nsys(path: Path, trace: Planted) -> Path:
    """The same in the tables of `nsys export --type sqlite`, times in nanoseconds."""
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        for table, columns in {
            "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
            "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, correlationId, shortName",
            "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, correlationId, copyKind, srcKind",
            "NVTX_EVENTS": "start, end, globalTid, text, textId",
        }.items():
            base.execute(f"CREATE TABLE {table} ({columns})")
        names: dict[str, int] = {}
        for event in trace.events:
            name = names.setdefault(event["name"], len(names))
            start, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            called = event["args"].get("correlation")
            match event["cat"]:
                case "cuda_runtime":
                    row = ("CUPTI_ACTIVITY_KIND_RUNTIME", (start, end, MAIN, called, name))
                case "kernel":
                    row = ("CUPTI_ACTIVITY_KIND_KERNEL", (start, end, 0, called, name))
                case "gpu_memcpy":
                    row = ("CUPTI_ACTIVITY_KIND_MEMCPY", (start, end, 0, called, 1, 0))
                case "user_annotation":
                    said = event["name"].replace("ProfilerStep#", "step ")
                    row = ("NVTX_EVENTS", (start, end, MAIN, said, None))
                case _:
                    continue
            base.execute(f"INSERT INTO {row[0]} VALUES ({', '.join('?' * len(row[1]))})", row[1])
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, name) for name, number in names.items()])
    base.close()
    return path


def write_nsys_lines(path: Path, trace: Planted, strings: Literal["first", "last", "separate"] = "first") -> Path:
    """The same as `nsys export --type json` writes it: 64-bit numbers as text, strings by their place in a table."""
    names: dict[str, int] = {"[Unknown]": 0}
    lines: list[dict] = [{"Type": 27, "CommEvent": {"time": "0"}}]
    for event in trace.events:
        start, end = str(round(event["ts"] * 1000)), str(round((event["ts"] + event["dur"]) * 1000))
        times = {"startNs": start, "endNs": end, "correlationId": event["args"].get("correlation")}
        on_gpu = {**times, "deviceId": 0, "contextId": "1", "streamId": "7", "globalPid": "292568055152640"}
        match event["cat"]:
            case "cuda_runtime":
                name = names.setdefault(event["name"] + "_v3020", len(names))
                call = {**times, "eventClass": 0, "name": str(name), "returnValue32": 0, "globalTid": str(MAIN)}
                lines.append({"Type": 48, "TraceProcessEvent": call})
            case "kernel":
                name = names.setdefault(event["name"], len(names))
                lines.append({"Type": 79, "CudaEvent": {**on_gpu, "eventClass": 3, "kernel": {"shortName": str(name)}}})
            case "gpu_memcpy":
                copy = {"sizebytes": "4096", "copyKind": "1", "srcKind": 0, "dstKind": 2, "copyCount": "1"}
                lines.append({"Type": 80, "CudaEvent": {**on_gpu, "eventClass": 1, "memcpy": copy}})
            case "user_annotation":
                said = event["name"].replace("ProfilerStep#", "iteration ")
                span = {"Type": 59, "Timestamp": start, "Text": said, "GlobalTid": str(MAIN), "EndTimestamp": end}
                lines.append({"Type": 59, "NvtxEvent": {**span, "DomainId": "0", "NsTime": True}})
    each = [{"type": "String", "id": str(number), "value": name} for name, number in names.items()]
    table = each if strings == "separate" else [{"data": list(names)}]
    ordered = [*table, *lines] if strings == "first" else [*lines, *table]
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in ordered))
    return path
