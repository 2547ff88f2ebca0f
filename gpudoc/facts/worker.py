"""A child process of `collect`: asks one part of the machine and tells each fact at once, for it may never return."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpudoc.facts.telling import Teller


def main(arguments: list[str]) -> None:
    """Run the probes named in `arguments[1:]` below the root `arguments[0]`, then leave without cleaning up."""
    root, names = Path(arguments[0]), arguments[1:]
    teller = Teller()
    for name in names:
        teller.begin(name)
        try:
            PROBES[name](teller, root)
        except Exception as error:  # a part of the machine may be broken in any way, and that becomes a result
            teller.fact(f"probe_failures.{name}", f"{type(error).__name__}: {error}"[:300])
    teller.end()
    # a driver library may hang in its exit handlers
    os._exit(0)


def _nvml(teller: Teller, root: Path) -> None:
    from gpudoc.facts import nvidia

    nvidia.collect(teller, root)


def _cuda(teller: Teller, root: Path) -> None:
    from gpudoc.facts import cuda

    del root
    cuda.collect(teller)


def _host(teller: Teller, root: Path) -> None:
    from gpudoc.facts import container, host

    teller.facts("host", host.collect(root))
    teller.fact("container", container.collect(root))


def _disk(teller: Teller, root: Path) -> None:
    from gpudoc.facts import host

    del root
    teller.facts("host", host.collect_disk())


def _driver(teller: Teller, root: Path) -> None:
    from gpudoc.facts import driver

    teller.facts("driver", driver.collect(root))


def _pci(teller: Teller, root: Path) -> None:
    from gpudoc.facts import topology

    teller.fact("pci", topology.collect(root))


def _nodes(teller: Teller, root: Path) -> None:
    from gpudoc.facts import driver

    teller.fact("nodes", driver.collect_nodes(root))


def _kernel_log(teller: Teller, root: Path) -> None:
    from gpudoc.facts import kernel_log

    teller.fact("kernel_log", kernel_log.collect(root))


PROBES: dict[str, Callable[[Teller, Path], None]] = {
    "nvml": _nvml,
    "cuda": _cuda,
    "host": _host,
    "disk": _disk,
    "driver": _driver,
    "pci": _pci,
    "nodes": _nodes,
    "kernel_log": _kernel_log,
}


if __name__ == "__main__":
    main(sys.argv[1:])
