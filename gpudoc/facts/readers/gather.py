"""Collects facts from many lines into one Machine; the first statement of a fact wins and keeps its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from gpudoc.facts.model import (
    Container,
    DeviceTest,
    Driver,
    Gpu,
    GpuProcess,
    Host,
    KernelEvent,
    Link,
    Machine,
    Package,
    PythonFacts,
    TorchBuild,
)
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern


def normal_name(distribution: str) -> str:
    """A distribution's name as the package index compares it: lower case, one dash."""
    return Pattern(r"[-_.]+").sub("-", distribution).lower()


_NOTHING = {"", "n/a", "none", "no cuda", "could not collect", "[n/a]", "not supported", "unknown", "unavailable"}

_RESULTS = ("skip", "pass", "warn", "fail")
# a build's target: the local part of pip's version, conda's build string (py3.10_cuda11.7_cudnn8.5.0_0, cpu_py39...)
_PIP_BUILD = Pattern(r"\+(?:(cpu|rocm|xpu)|cu(\d+)(\d))")
_CONDA_BUILD = Pattern(r"(?:^|_)(cpu)(?:_|$)|cuda_?(\d+)\.?(\d)")


class Gather:
    """Facts by dotted name while text is read; `machine()` freezes them."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, object]] = {}
        self._gpus: dict[int, dict[str, object]] = {}
        self._links: dict[int, dict[str, object]] = {}
        self._processes: dict[int, list[GpuProcess]] = {}
        self._packages: dict[tuple[str, str, str], Package] = {}
        self._events: list[KernelEvent] = []
        self._tests: dict[tuple[str, str, object], DeviceTest] = {}
        self._environment: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.recognised: dict[str, None] = {}
        self.no_gpus = False

    def put(self, path: str, value: object, line: Line) -> None:
        """Record the fact `path` ('driver.cuda_version') unless it was stated before."""
        part, name = path.split(".")
        if name not in self._values.setdefault(part, {}):
            self._values[part][name] = value
            self.origins[path] = line.origin

    def put_torch(self, version: str, line: Line, build: str = "") -> None:
        """Record a torch version and the target of its build, if the version or conda's `build` names it."""
        self.put("torch.version", version, line)
        built = _PIP_BUILD.search(version) or _CONDA_BUILD.search(build)
        if built is not None:
            self.put("torch.accelerator", built[1] or "cuda", line)
        if built is not None and built[2]:
            self.put("torch.cuda_version", (int(built[2]), int(built[3])), line)

    def put_gpu(self, index: int, line: Line, **facts: object) -> None:
        """Record facts of the GPU with this index."""
        gpu = self._gpus.setdefault(index, {})
        for name, value in facts.items():
            if name not in gpu:
                gpu[name] = value
                self.origins[f"gpus.{index}.{name}"] = line.origin

    def put_link(self, index: int, **facts: object) -> None:
        """Record facts of that GPU's PCIe link."""
        self._gpus.setdefault(index, {})
        for name, value in facts.items():
            self._links.setdefault(index, {}).setdefault(name, value)

    def put_process(self, index: int, process: GpuProcess, line: Line) -> None:
        """Record a process that holds memory on the GPU."""
        self._processes.setdefault(index, []).append(process)
        self.origins.setdefault(f"gpus.{index}.processes", line.origin)

    def put_package(self, package: Package, line: Line) -> None:
        """Record an installed distribution; its name in the normal form, lower case with '-'."""
        name = normal_name(package.name)
        key = (name, package.version, package.channel)
        self._packages.setdefault(key, dataclasses.replace(package, name=name))
        self.origins.setdefault(f"packages.{name}", line.origin)

    def put_event(self, event: KernelEvent) -> None:
        """Record a line of the kernel log."""
        self._events.append(event)

    def put_test(self, test: DeviceTest) -> None:
        """Record a tool's result for a GPU or the node; of several results of the same test, the worst one stays."""
        key = (test.tool, test.name, test.gpu)
        known = self._tests.get(key)
        if known is None or _RESULTS.index(test.result) > _RESULTS.index(known.result):
            self._tests[key] = test

    def put_environment(self, name: str, value: str, line: Line) -> None:
        """Record an environment variable."""
        if name not in self._environment:
            self._environment[name] = value
            self.origins[f"environment.{name}"] = line.origin

    def gpu_indices(self) -> tuple[int, ...]:
        """The indices of the GPUs recorded so far, ascending."""
        return tuple(sorted(self._gpus))

    def gpu_fact(self, index: int, name: str) -> object:
        """A recorded fact of one GPU, or None."""
        return self._gpus.get(index, {}).get(name)

    def recognise(self, kind: str) -> None:
        """Say that the text holds a report of this kind."""
        self.recognised.setdefault(kind)

    def machine(self) -> Machine:
        """The machine as far as the text described it."""
        given: dict[str, object] = {}
        for part, kind in _PARTS.items():
            given[part] = kind(**self._values.get(part, {}))
        if self._packages:
            given["python"] = dataclasses.replace(
                given["python"],  # type: ignore[type-var]  # built as PythonFacts just above
                packages=tuple(self._packages.values()),
            )
        indices = sorted({*self._gpus, *self._processes})
        if indices or self.no_gpus:
            given["gpus"] = tuple(self._gpu(i) for i in indices)
        if self._environment:
            given["environment"] = dict(self._environment)
        if self._events:
            given["kernel_log"] = tuple(self._events)
        if self._tests:
            given["tests"] = tuple(self._tests.values())
        return Machine(**given)  # type: ignore[arg-type]  # names and types are those of _PARTS

    def _gpu(self, index: int) -> Gpu:
        facts = dict(self._gpus.get(index, {}))
        if index in self._processes:
            facts["processes"] = tuple(self._processes[index])
        if index in self._links:
            facts["link"] = Link(**self._links[index])  # type: ignore[arg-type]
        return Gpu(index=index, **facts)  # type: ignore[arg-type]


_PARTS: Mapping[str, type] = {
    "driver": Driver,
    "torch": TorchBuild,
    "python": PythonFacts,
    "host": Host,
    "container": Container,
}


def stated(value: str) -> str | None:
    """`value` without surrounding blanks and table bars, or None if it states no value, such as 'n/a'."""
    text = value.strip().strip("|").strip()
    return None if text.lower() in _NOTHING else text


def version_pair(text: str) -> tuple[int, int] | None:
    """The first 'major.minor' in `text` as numbers, or None."""
    match = Pattern(r"(\d{1,3})\.(\d{1,3})").search(text)
    return (int(match[1]), int(match[2])) if match else None
