"""The cell of a trial: its writes are private and discarded, and its network ends at this machine's loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudoc.facts.host import memory_free_bytes
from gpudoc.facts.model import Absent
from gpudoc.patterns import Pattern
from gpudoc.script.process import CommandProcess, Terms
from gpudoc.temporary import TemporaryFolder, remove_tree
from gpudoc.units import format_bytes

# the private layers are kept in memory: a trial may write 1/_ROOM_SHARE of the free memory, within bounds
_ROOM_SHARE = 8
_LEAST_ROOM_BYTES, _MOST_ROOM_BYTES = 64 << 20, 16 << 30
_UBUNTU = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_DOCKER = "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
_NO_NETWORK = Pattern(
    r"Network is unreachable|Temporary failure in name resolution|Name or service not known|"
    r"No address associated with hostname|LocalEntryNotFoundError|Failed to resolve '|Max retries exceeded with url"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The kinds of isolation that this machine allows for a trial; `why_not` says why others fail, else it is empty.

    `files`: it changes no file, shared memory or System V object; `network`: it only reaches itself;
    `processes`: it only sees and signals its own processes. `user`: through a user namespace, without root's rights.
    """

    files: bool = False
    network: bool = False
    processes: bool = False
    user: bool = False
    why_not: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether a trial leaves no traces. Its processes are ended in any case."""
        return self.files and self.network


def _here() -> Isolation:
    return what_can_be()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: `scratch` is an existing folder of gpudoc that is shared, `network` keeps the machine's own network.

    `files` have another content inside the cell.
    `room_bytes` is the most that a trial may write elsewhere in all; None allows an eighth of the free memory. Kernels
    that cannot keep layers in memory keep them on disk, whatever `in_memory` says.
    """

    scratch: Path
    network: bool = False
    room_bytes: int | None = None
    files: Mapping[Path, bytes] = field(default_factory=dict)
    in_memory: bool = True
    isolation: Isolation = field(default_factory=_here)

    @property
    def room(self) -> int:
        """Bytes that a trial may write."""
        if self.room_bytes is not None:
            return self.room_bytes
        free = memory_free_bytes()
        share = 0 if isinstance(free, Absent) else free // _ROOM_SHARE
        return max(_LEAST_ROOM_BYTES, min(_MOST_ROOM_BYTES, share))

    @contextlib.contextmanager
    def order(self) -> Iterator[Mapping[str, object]]:
        """The order from which a keeper builds the cell; the cell's folder is removed when the context ends."""
        folder = Path(tempfile.mkdtemp(prefix="cell-", dir=self.scratch)).resolve()
        place, disk = folder / "place", folder / "layers"
        place.mkdir()
        disk.mkdir()
        near = (Path.cwd(), os.path.expanduser("~"), tempfile.gettempdir(), "/tmp", "/var/tmp")  # noqa: PTH111 - Path.home() fails without one
        plan = {
            "place": str(place),
            "disk": str(disk),
            "room_bytes": self.room,
            "shared": [str(self.scratch.resolve())],
            "in_memory": self.in_memory,
        }
        try:
            yield {
                "user": self.isolation.user,
                "network": self.isolation.network and not self.network,
                "processes": self.isolation.processes,
                "near": [os.path.realpath(path) for path in near if os.path.isdir(path)],  # noqa: PTH112 - and str
                "plan": plan,
                "files": {str(path): content.decode("latin-1") for path, content in self.files.items()},
            }
        finally:
            # the kernel leaves an overlay's own folders without any permissions
            with contextlib.suppress(OSError):
                remove_tree(folder)


@functools.cache
def what_can_be() -> Isolation:
    """The isolation that works here, tried once with a command that does nothing; takes about a tenth of a second."""
    refused: dict[str, None] = {}
    for user in (False, True) if os.geteuid() == 0 else (True,):
        found = _try(Isolation(files=True, network=True, processes=True, user=user), refused)
        if found.files:
            return found
    return Isolation(why_not=tuple(refused))


def _try(wanted: Isolation, refused: dict[str, None]) -> Isolation:
    """`wanted` without the walls that the keeper could not build; the reasons are added to `refused`."""
    with TemporaryFolder("cell") as folder:
        while wanted.files:
            cell = Cell(scratch=folder, room_bytes=_LEAST_ROOM_BYTES, isolation=wanted)
            with cell.order() as order:
                streams = (subprocess.DEVNULL,) * 3
                kept = CommandProcess(["true"], Terms(environment=os.environ, streams=streams, cell=order))
                while kept.hear():
                    pass
                kept.end()
                kept.close()
            if not kept.wall and kept.code == 0:
                break
            wall = kept.wall or "files"
            why = kept.why or kept.failed or "the process that builds the cell ended without a message"
            refused.setdefault(why + _way_out(why))
            wanted = dataclasses.replace(wanted, **{wall: False}, why_not=(*wanted.why_not, why + _way_out(why)))
    return wanted


def _way_out(why: str) -> str:
    if _UBUNTU.exists() and _UBUNTU.read_text().strip() == "1" and "ermi" in why:
        return f"; AppArmor forbids it ({_UBUNTU.name}=1): sudo sysctl kernel.{_UBUNTU.name}=0"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return f"; the container forbids it: {_DOCKER}"
    return ""


def blame(text: str, *, full: bool, room_bytes: int, network: bool) -> tuple[str, str] | None:
    """The part of a cell that a script's last output blames, and what to do about it; None if it blames none.

    `full` and `room_bytes` belong to the trial that wrote `text`; `network`: it had the machine's network.
    """
    if full or "No space left on device" in text:
        return (
            f"the script wrote more than the {format_bytes(room_bytes)} that a trial may write",
            "if it downloads or prepares data, run it once on its own; --in-place allows real writes",
        )
    if "Value too large for defined data type" in text:
        return (
            "the script writes to a file or folder of another owner or group, which a private layer cannot represent",
            "sg GROUP -c 'gpudoc tune -- ...' with the group of the file; --in-place allows real writes",
        )
    if not network and _NO_NETWORK.search(text):
        return ("the script needs the network, but trials have none", "--allow network")
    return None
