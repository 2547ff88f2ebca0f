"""Which GPU a piece of evidence is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpudoc.doctor.model import Card
from gpudoc.facts.identify import with_address
from gpudoc.facts.model import Absent, Fact, Gpu, Machine
from gpudoc.patterns import Pattern

_ADDRESS = Pattern(r"(?i)^\s*(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?\s*$")


def plain_address(text: str) -> str:
    """A PCI address as '0000:3b:00.0', in any form of the driver, nvidia-smi or the kernel; other text stays."""
    match = _ADDRESS.search(text)
    if match is None:
        return text
    return f"{int(match[1] or '0', 16):04x}:{match[2].lower()}:{match[3].lower()}.{(match[4] or '0').lower()}"


def card_at(address: Fact[str], machine: Machine) -> Card | None:
    """The card at a PCI address, with index and facts if NVML lists it, else the address alone; None without one."""
    if isinstance(address, Absent):
        return None
    gpu = gpu_at(address, machine)
    if gpu is not None:
        return replace(Card.of(gpu), pci_address=plain_address(address))
    return Card(pci_address=plain_address(address))


def cards_at(addresses: Iterable[Fact[str]], machine: Machine) -> tuple[Card, ...]:
    """The cards at these PCI addresses; an absent address gives none."""
    return tuple(card for address in addresses if (card := card_at(address, machine)) is not None)


def gpu_at(address: str, machine: Machine) -> Gpu | None:
    """The GPU that a live machine lists at a PCI address, or None."""
    gpus: tuple[Gpu, ...] = () if isinstance(machine.gpus, Absent) else machine.gpus
    return with_address(plain_address(address), gpus)


def told_card(gpu: Gpu) -> tuple[Card, ...]:
    """The card of a GPU in a text: only by its PCI address, as the order in a text is not an index."""
    if isinstance(gpu.pci_address, Absent):
        return ()
    return (Card(pci_address=plain_address(gpu.pci_address), uuid=gpu.uuid),)
