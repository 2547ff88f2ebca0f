"""A profile of one process as intervals: the activities of the main thread by kind, and the work of each GPU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, NamedTuple

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.facts.readers.python_errors import owner_of
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

# the kinds of activity of a process's main thread and of a GPU; the rest of the main thread's time is Python
HostKind = Literal["data", "sync", "op"]
DeviceKind = Literal["compute", "communication", "copy"]

_LOADING = Pattern(r"enumerate\(DataLoader\)#\w{1,80}\.__next__")
_FRAME = Pattern(r"([^()\s][^()]{0,300}\.py)\((\d{1,7})\): (.{1,200})")
STEP = "ProfilerStep#"
_OPTIMIZER = "Optimizer.step#"
_WAITS = frozenset(
    f"{runtime}{what}Synchronize" for runtime in ("cuda", "hip") for what in ("Stream", "Device", "Event")
)
# ops that read a value back, and so wait
READS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero")


class GpuWork(NamedTuple):
    """A GPU's work from `start` to `end` in microseconds; the host asked for it at `asked`, None if unknown."""

    start: float
    end: float
    kind: DeviceKind
    asked: float | None
    name: str


class Span(NamedTuple):
    """One activity of the main thread, in microseconds; `name` is the event's name."""

    start: float
    end: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One process's trace: its steps, its main thread's activities by kind, and each GPU's work in order of time.

    `frames` are functions of the user's own code, as (span, place); `is_cut` is True if the file ends in the middle.
    """

    origin: str
    tool: str
    rank: int | None
    steps: tuple[tuple[float, float], ...]
    host: Mapping[HostKind, tuple[Span, ...]]
    devices: Mapping[int, tuple[GpuWork, ...]]
    frames: tuple[Span, ...] = ()
    is_cut: bool = False


@dataclass(slots=True)
class TraceGather:
    """Collects intervals while events are read; `trace` sorts them into one Trace."""

    count: int = 0
    _steps: list[tuple[float, float, object]] = field(default_factory=list)
    _optimizer: list[tuple[float, object]] = field(default_factory=list)
    _host: dict[object, list[tuple[HostKind, Span]]] = field(default_factory=dict)
    _frames: list[tuple[object, Span]] = field(default_factory=list)
    _work: dict[int, list[tuple[float, float, DeviceKind, int, str]]] = field(default_factory=dict)
    _asked: dict[int, float] = field(default_factory=dict)

    def add(self, event: Mapping[str, object]) -> None:
        """Take one event of Chrome's format; an event that is not an interval is left out."""
        if event.get("ph") != "X":
            return
        start, length = event.get("ts"), event.get("dur", 0)
        if isinstance(start, bool) or not isinstance(start, int | float) or not isinstance(length, int | float):
            return
        self.count += 1
        name, args = str(event.get("name", "")), event.get("args")
        kind = str(event.get("cat", "")).lower()
        end, args = start + max(0.0, length), args if isinstance(args, dict) else {}
        if kind in ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"):
            device, called = args.get("device", event.get("pid")), args.get("correlation")
            self.add_work(device, start, end, kind_of_work(kind, name), called, name)
        elif kind in ("cuda_runtime", "runtime", "cuda_driver", "hip_runtime"):
            self.add_call(event.get("tid"), start, end, name, args.get("correlation"))
        elif kind in ("cpu_op", "operator", "user_annotation"):
            self.add_op(event.get("tid"), start, end, name, is_op=kind != "user_annotation")
        elif kind == "python_function":
            frame = _FRAME.fullmatch(name)
            if frame is not None and owner_of(frame[1]) == "user":
                self._frames.append((event.get("tid"), Span(start, end, f"{frame[1]}:{frame[2]} in {frame[3]}")))

    def add_op(self, thread: object, start: float, end: float, name: str, *, is_op: bool) -> None:
        """Take an operator or an annotation of the host."""
        if name.startswith(STEP):
            self._steps.append((start, end, thread))
        elif _LOADING.match(name):
            self.add_host(thread, "data", start, end, name)
        elif name.startswith(_OPTIMIZER):
            self._optimizer.append((end, thread))
            self.add_host(thread, "op", start, end, name)
        elif name in READS:
            self.add_host(thread, "sync", start, end, name)
        elif is_op:
            self.add_host(thread, "op", start, end, name)

    def add_host(self, thread: object, kind: HostKind, start: float, end: float, name: str) -> None:
        """Take one activity of a thread."""
        self._host.setdefault(thread, []).append((kind, Span(start, end, name)))

    def add_work(self, device: object, start: float, end: float, kind: DeviceKind, called: object, name: str) -> None:
        """Take a GPU's work; `called` joins it to the call that asked for it."""
        if isinstance(device, int):
            asked = called if isinstance(called, int) else -1
            self._work.setdefault(device, []).append((start, end, kind, asked, name))

    def add_call(self, thread: object, start: float, end: float, name: str, called: object) -> None:
        """Take a call of the CUDA or HIP runtime; `called` joins it to the work that it asked for."""
        if isinstance(called, int):
            self._asked[called] = start
        if name in _WAITS:
            self.add_host(thread, "sync", start, end, name)

    def trace(self, *, origin: str, tool: str, rank: int | None, is_cut: bool) -> Trace:
        """The collected trace of the thread that trains; GpudocError if nothing belongs to a training process."""
        if not self._host and not self._work:
            raise GpudocError(
                f"{origin} is a trace that contains no operator, kernel or step of a training process",
                hint="record it with torch.profiler, or with nsys and `nsys export --type sqlite`",
            )
        main = self._main_thread()
        host: dict[HostKind, list[Span]] = {"data": [], "sync": [], "op": []}
        # autograd's own thread works while the main one waits for it
        for thread, spans in self._host.items():
            for kind, span in spans:
                if thread == main or kind == "op":
                    host[kind].append(span)
        devices = {
            device: tuple(
                GpuWork(start, end, kind, self._asked.get(called), name)
                for start, end, kind, called, name in sorted(work)
            )
            for device, work in self._work.items()
        }
        return Trace(
            origin=escape_line(origin),
            tool=tool,
            rank=rank,
            steps=self._steps_of(main),
            host={kind: tuple(sorted(spans)) for kind, spans in host.items()},
            devices=devices,
            frames=tuple(sorted(span for thread, span in self._frames if thread == main)),
            is_cut=is_cut,
        )

    def _main_thread(self) -> object:
        """The thread of the steps, else of the optimizer, else of the loader, else the one with most events."""
        for threads in ([thread for *_, thread in self._steps], [thread for _, thread in self._optimizer]):
            if threads:
                return threads[0]
        loading = [thread for thread, spans in self._host.items() if any(kind == "data" for kind, _ in spans)]
        return loading[0] if loading else max(self._host, key=lambda thread: len(self._host[thread]), default=None)

    def _steps_of(self, main: object) -> tuple[tuple[float, float], ...]:
        """The marked steps of the main thread, else the spans between its optimizer steps, else empty."""
        marked = sorted({(start, end) for start, end, thread in self._steps if thread == main})
        if marked:
            return tuple(marked)
        ends = sorted(end for end, thread in self._optimizer if thread == main)
        return tuple(itertools.pairwise(ends))


def kind_of_work(category: str, name: str) -> DeviceKind:
    """The kind of work that a kernel or copy does."""
    if category != "kernel":
        return "copy"
    return "communication" if "nccl" in name.lower() or "rccl" in name.lower() else "compute"
