"""What NVIDIA's cards offer: memory, bandwidth and dense rates; found by name, never guessed."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from typing import cast

from gpudoc.errors import GpudocError
from gpudoc.frozen import dataclass
from gpudoc.knowledge.nvlinks import find_nvlinks
from gpudoc.knowledge.rates import nvlink_gb_per_s, pcie_gb_per_s
from gpudoc.knowledge.tables import read_table
from gpudoc.patterns import Pattern
from gpudoc.units import GIB, MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCard:
    """One card: usable memory as torch reports it, bandwidth, dense TFLOP/s by type, and the source of these.

    `host_gb_per_s` is the most that 16 lanes of PCIe, or the link inside a package, carry in one direction.
    `link_gb_per_s` is the same for the links to other GPUs: NVLink if a board with this card has it. If `shares_host`
    is true, the card uses the host's memory.
    """

    name: str
    memory_bytes: int
    bandwidth_gb_per_s: float
    tflops: Mapping[str, float]
    capability: tuple[int, int]
    host_gb_per_s: float
    link_gb_per_s: float
    source: str
    shares_host: bool = False


@functools.cache
def cards() -> tuple[KnownCard, ...]:
    """Every card of the table, newest families first."""
    return tuple(_card(row) for row in read_table("cards.yaml", "cards"))


def find_card(text: str) -> KnownCard | None:
    """The card that `text` names ('RTX 3090', 'NVIDIA GeForce RTX 3090', 'rtx3090'), or None."""
    return _by_name().get(_plain(text))


def require_card(text: str) -> KnownCard:
    """The card that `text` names; GpudocError with the nearest names otherwise."""
    card = find_card(text)
    if card is None:
        near = difflib.get_close_matches(_plain(text), list(_by_name()), n=3, cutoff=0.5)
        names = list(dict.fromkeys(_by_name()[name].name for name in near))
        guess = f"did you mean {' or '.join(map(repr, names))}? " if names else ""
        raise GpudocError(f"unknown card: {text!r}", hint=f"{guess}a size always works, for example 24GiB")
    return card


def context_bytes(capability: tuple[int, int] | None) -> int:
    """The most bytes that a process is known to hold outside PyTorch's allocator.

    The maximum over all capabilities if `capability` is None or not in the table.
    """
    return context_range(capability)[1]


def context_range(capability: tuple[int, int] | None) -> tuple[int, int]:
    """The least and the most bytes that processes were seen to hold outside PyTorch's allocator."""
    known = {_version(row["capability"]): cast(list[int], row["mib"]) for row in read_table("cards.yaml", "contexts")}
    low, high = known.get(capability or (0, 0), max(known.values()))
    return low * MIB, high * MIB


def cublas_workspace_bytes(capability: tuple[int, int] | None) -> int:
    """Bytes that cuBLAS keeps from PyTorch's allocator after a thread's first matrix product."""
    rows = read_table("cards.yaml", "workspaces")
    fitting = [row for row in rows if capability is None or _version(row["from_capability"]) <= capability]
    return int(str(fitting[-1]["bytes"]))


def _card(row: Mapping[str, object]) -> KnownCard:
    capability = _version(row["capability"])
    rows = [known for known in read_table("cards.yaml", "pcie") if _version(known["from_capability"]) <= capability]
    host = float(str(row.get("host_gb_per_s") or pcie_gb_per_s(int(str(rows[-1]["generation"])), 16) or 0.0))
    found = [find_nvlinks(str(name)) for name in (row["name"], *cast(list[str], row.get("aliases", [])))]
    links = max((known.links for known in found if known is not None), default=0)
    return KnownCard(
        name=str(row["name"]),
        memory_bytes=int(float(str(row["memory_gib"])) * GIB),
        bandwidth_gb_per_s=float(str(row["bandwidth_gb_per_s"])),
        tflops=cast(Mapping[str, float], row["tflops"]),
        capability=capability,
        host_gb_per_s=host,
        link_gb_per_s=max(host, links * (nvlink_gb_per_s(capability) or 0.0)),
        source=str(row["source"]),
        shares_host=bool(row.get("shares_host", False)),
    )


@functools.cache
def _by_name() -> dict[str, KnownCard]:
    rows = read_table("cards.yaml", "cards")
    names: dict[str, KnownCard] = {}
    for row, card in zip(rows, cards(), strict=True):
        for name in (card.name, *cast(list[str], row.get("aliases", []))):
            names[_plain(name)] = card
    return names


def _version(value: object) -> tuple[int, int]:
    major, minor = str(value).split(".")
    return int(major), int(minor)


def _plain(text: str) -> str:
    words = Pattern(r"\b(nvidia|geforce|tesla|graphics|gpu|quadro)\b").sub(" ", text.lower())
    return Pattern(r"[^a-z0-9]").sub("", words)
