"""The options of `gpudoc fix`, read by the command line and by `api.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gpudoc.errors import GpudocError
from gpudoc.fix.model import Claim
from gpudoc.frozen import dataclass
from gpudoc.option import Option
from gpudoc.tune.options import read_value
from gpudoc.units import parse_duration, parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOptions:
    """The options of `gpudoc fix`, written as on the command line."""

    write: Annotated[bool, Option("Write the proved change, unless the file has changed.")] = False
    patch: Annotated[Path | None, Option("Write the proved change to this file, for patch -p1.", "FILE")] = None
    memory_limit: Annotated[str, Option("Limit memory to this: 8GiB, 512MiB.", "SIZE")] = ""
    budget: Annotated[str, Option("Limit the whole command to this time: 90s, 5m, 1h.", "TIME")] = "5m"
    allow: Annotated[
        str, Option("Also offer changes of this class: behaviour (fewer checkpoints), rounding.", "CLASS")
    ] = ""
    network: Annotated[bool, Option("Let the script use the network.")] = False
    command: tuple[str, ...] = ()

    @property
    def budget_s(self) -> float:
        """Seconds for the whole command; GpudocError (exit 2) if it is not a duration."""
        return read_value(parse_duration, "--budget", self.budget)

    @property
    def memory_limit_bytes(self) -> int | None:
        """The memory that each process of the script may take; None if no limit was given."""
        return read_value(parse_size, "--memory-limit", self.memory_limit) if self.memory_limit else None

    @property
    def claims(self) -> frozenset[Claim]:
        """The claims of changes that may be offered; GpudocError for an unknown word."""
        words = [word.strip() for word in self.allow.split(",") if word.strip()]
        known = {claim.value: claim for claim in (Claim.BEHAVIOUR, Claim.ROUNDING)}
        other = next((word for word in words if word not in known), None)
        if other is not None:
            raise GpudocError(f"--allow: {other!r} is not known", hint="--allow behaviour,rounding")
        return frozenset({Claim.EXACT, *(known[word] for word in words)})
