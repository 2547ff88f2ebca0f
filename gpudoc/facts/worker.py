"""The children of `collect`: each examines one part of the machine and reports each fact at once, as it may hang."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpudoc.facts import amd, container, cuda, driver, host, kernel_log, system, topology
from gpudoc.facts.telling import Teller


def main(arguments: list[str]) -> None:
    """Fork a worker for each group of the plan {name: [file descriptor, probes]}, and wait for all of them.

    `arguments` are the root and the plan. On Windows, which has no fork, this process is the plan's only worker.
    """
    root, plan = Path(arguments[0]), json.loads(arguments[1])
    if sys.platform == "win32":
        ((descriptor, probes),) = plan.values()
        run(Teller(descriptor), root, probes)
    else:
        descriptors = {fork_worker(root, probes, descriptor): descriptor for descriptor, probes in plan.values()}
        while descriptors:
            pid, status = os.wait()
            descriptor = descriptors.pop(pid, None)
            if descriptor is not None:
                _report_end(descriptor, os.waitstatus_to_exitcode(status))


def fork_worker(root: Path, probes: Sequence[str], descriptor: int) -> int:
    """The process id of a new worker, in a new process group, which runs `probes` in order and exits."""
    if sys.platform == "win32":
        raise OSError("Windows has no fork")
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            run(Teller(descriptor), root, probes)
        finally:
            # a driver library may hang in its exit handlers
            os._exit(1)
    return pid


def run(teller: Teller, root: Path, probes: Sequence[str]) -> None:
    """Run `probes` and exit without cleaning up; a probe that fails is reported, and the next one runs."""
    teller.group(os.getpid())
    for name in probes:
        teller.begin(name)
        try:
            PROBES[name](teller, root)
        except Exception as error:  # a part of the machine may be broken in any way: the error is a result
            teller.fact(f"probe_failures.{name}", f"{type(error).__name__}: {error}"[:300])
    teller.end()
    os._exit(0)


def _report_end(descriptor: int, code: int) -> None:
    """Report how a worker ended if it crashed, because it cannot report this itself."""
    from gpudoc.process.ending import how_it_ended

    if code:
        try:
            Teller(descriptor).died(how_it_ended(code))
        except BrokenPipeError:
            return
    os.close(descriptor)


def _nvml(teller: Teller, root: Path) -> None:
    # imported here: this import takes as long as all others together, and the other workers need not wait for it
    from gpudoc.facts import nvidia

    nvidia.collect(teller, root)


def _cuda(teller: Teller, root: Path) -> None:
    del root
    cuda.collect(teller)


def _host(teller: Teller, root: Path) -> None:
    teller.facts("host", host.collect(root))


def _container(teller: Teller, root: Path) -> None:
    teller.fact("container", container.collect(root))


def _system(teller: Teller, root: Path) -> None:
    del root
    teller.facts("host", system.collect())


def _disk(teller: Teller, root: Path) -> None:
    del root
    teller.facts("host", host.collect_disk())


def _driver(teller: Teller, root: Path) -> None:
    teller.facts("driver", driver.collect(root))


def _pci(teller: Teller, root: Path) -> None:
    teller.fact("pci", topology.collect(root))


def _amd(teller: Teller, root: Path) -> None:
    teller.fact("amd_gpus", amd.collect(root))


def _nodes(teller: Teller, root: Path) -> None:
    teller.fact("nodes", driver.collect_nodes(root))


def _kernel_log(teller: Teller, root: Path) -> None:
    teller.fact("kernel_log", kernel_log.collect(root))


PROBES: Mapping[str, Callable[[Teller, Path], None]] = {
    "nvml": _nvml,
    "cuda": _cuda,
    "host": _host,
    "container": _container,
    "system": _system,
    "disk": _disk,
    "driver": _driver,
    "pci": _pci,
    "amd": _amd,
    "nodes": _nodes,
    "kernel_log": _kernel_log,
}


if __name__ == "__main__":
    main(sys.argv[1:])
