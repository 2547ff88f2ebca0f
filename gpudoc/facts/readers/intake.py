"""The entry point of the readers: pasted text, or the words of a live machine, as one Reading."""

from __future__ import annotations

import functools
import json
import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Fact, Machine
from gpudoc.facts.readers import mentions, nvidia_smi, packages, precision, tracebacks
from gpudoc.facts.readers.clean import Data, clean, head_of
from gpudoc.facts.readers.error_file import read_error_file
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.genre import PASTE, Kind, genre_of, recognise
from gpudoc.facts.readers.large_file import GZIP, MOST_PARTS, LargeFile, TooManyPartsError, open_regular, unpack
from gpudoc.facts.readers.model import CleanText, Line, Reading
from gpudoc.patterns import Scan
from gpudoc.shell import quote_path

# a file above the first size is read in pieces; above the second it is rejected
_HELD_BYTES, _MOST_BYTES = 64 << 20, 4 << 30
# the limit for an unpacked file and for standard input, since both are held in memory
_MOST_HELD_BYTES = 256 << 20
_STDIN = "standard input"
_UNPACKED_AT_ONCE = 1 << 20
# the first byte of protocol 2 and later, which PyTorch's dumps use
_PICKLE = b"\x80"
# how much of either end of a text is searched for names of ranks, and how many matches are examined
_LOOKED_AT, _MOST_PREFIXES = 256 << 10, 2_000


def load(path: Path) -> Data:
    """The bytes of a file, unpacked when gzip wrote it, or the lines of torchrun's error file.

    GpudocError if it is missing, a directory or unreadable.
    """
    from gpudoc.reading import read_bytes

    data: Data
    named = escape_line(path)
    try:
        if path.is_dir():
            raise GpudocError(
                f"{named} is a directory", hint=f"for example: gpudoc doctor {quote_path(path / 'train.log')}"
            )
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            data = read_bytes(path, "report or log", most_bytes=_MOST_HELD_BYTES)
            return unpacked(data, str(path)) if data[:2] == GZIP else data
        handle = open_regular(path)
        data = LargeFile(handle, os.fstat(handle).st_size)
        if len(data) > _MOST_BYTES:
            raise GpudocError(
                f"{named} is larger than 4 GiB", hint=f"tail -c 100M {quote_path(path)} | gpudoc doctor -"
            )
        if len(data) <= _HELD_BYTES:
            data = data[:]
    except FileNotFoundError as problem:
        raise GpudocError(
            f"no such file: {named}",
            hint="pass the path of a report or log, the text of an error in quotes, or - for stdin",
        ) from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise GpudocError(f"cannot read {named}: {reason}", hint="check the path and its permissions") from problem
    return _as_log(data, str(path))


def _as_log(data: Data, name: str) -> Data:
    """The bytes, unpacked if gzip wrote them, or the lines of torchrun's error file."""
    data = unpacked(data, name) if data[:2] == GZIP else data
    is_json = data[:64].lstrip().startswith(b"{")
    return (read_error_file(data) if is_json else None) or data


def unpacked(data: Data, name: str) -> bytes:
    """The unpacked bytes, as far as they go if the file was cut off; GpudocError if it is damaged or far too large.

    It is unpacked piece by piece: a file that grows beyond the limit is rejected before it fills the memory.
    """
    out = bytearray()
    try:
        for block in unpack(data, _UNPACKED_AT_ONCE):
            out += block
            if len(out) > _MOST_HELD_BYTES:
                raise GpudocError(
                    f"{escape_line(name)} unpacks to more than {_MOST_HELD_BYTES >> 20} MiB", hint=_part_of(name)
                )
    except TooManyPartsError:
        raise GpudocError(
            f"{escape_line(name)} consists of more than {MOST_PARTS:,} parts", hint=_part_of(name)
        ) from None
    except zlib.error as problem:
        if not out:
            raise GpudocError(
                f"{escape_line(name)} cannot be unpacked: {problem}", hint="pass the text itself"
            ) from problem
    return bytes(out)


def _part_of(name: str) -> str:
    return f"{'... | zcat' if name == _STDIN else f'zcat {quote_path(name)}'} | tail -c 100M | gpudoc doctor -"


def read(data: bytes | str, *, source: str = "", name: str = "the input") -> Reading:
    """The Reading of pasted text of any mixture, in one pass; GpudocError if it is empty or binary."""
    raw = data.encode("utf-8", errors="replace") if isinstance(data, str) else data
    return read_lines(clean(raw, source, name=name), genre_of(head_of(raw, name=name), name))


def names_ranks(data: Data) -> bool:
    """Whether a text names more than one rank as its writer, or contains a launcher's report of how ranks ended."""
    head = data[:_LOOKED_AT] + data[max(_LOOKED_AT, len(data) - _LOOKED_AT) :]
    found = (head[start:end].strip() for start, end in islice(_prefixes().finditer(head), _MOST_PREFIXES))
    return len(set(found)) > 1


@functools.cache
def _prefixes() -> Scan:
    return Scan(
        r"(?m)^(?:[\w.-]{1,40}: )? {0,2}[0-9]{1,4}: |\[[0-9]{1,3},[0-9]{1,5}\]<std|^[\w.-]{1,40}-[0-9]{1,4} {1,12}\| |"
        r"\[(?:rank|Rank|RANK|default|trainer|worker)[:= ]{0,2}[0-9]{1,5}\]|local_rank: [0-9]{1,4}|rank +: [0-9]{1,5}|"
        r"srun: error: [\w.-]{1,60}: tasks? [0-9]|process (?:rank )?[0-9]{1,5} (?:terminated with|with PID)"
    )


def is_dump(data: Data) -> bool:
    """Whether the bytes begin like a pickle."""
    return data[:1] == _PICKLE


def read_all(inputs: Sequence[tuple[str, Data]]) -> Reading:
    """Several texts as the evidence of one machine, each line citing the name of its input if there is more
    than one. Documentation and programs among them do not describe a machine, so they are left out."""
    several = len(inputs) > 1
    dumps = [(name, data) for name, data in inputs if is_dump(data)]
    inputs = [(name, data) for name, data in inputs if not is_dump(data)]
    read = [(genre_of(head_of(data, name=name), name), name, data) for name, data in inputs]
    pastes = [one for one in read if one[0].genre in ("paste", "chapters", "configuration")]
    lines: list[Line] = []
    for _, name, data in pastes or read:
        lines += clean(data, name if several else "", name=name)
    told = [one[0] for one in pastes or read]
    # a configuration next to a log belongs to the log
    reading = read_lines(tuple(lines), next((k for k in told if k.genre != "configuration"), *told[:1] or (PASTE,)))
    if not dumps:
        return reading
    from gpudoc.facts.readers.dumps import RankTrace, read_dump

    dumped = [read_dump(data, name) for name, data in dumps]
    traces = tuple(one for one in dumped if isinstance(one, RankTrace))
    snapshots = tuple(gpu for one in dumped if not isinstance(one, RankTrace) for gpu in one)
    kinds_of = ("NCCL flight recorder",) * bool(traces) + ("CUDA memory snapshot",) * bool(snapshots)
    return replace(reading, recognised=(*kinds_of, *reading.recognised), traces=traces, snapshots=snapshots)


def read_lines(lines: tuple[Line, ...], kind: Kind = PASTE) -> Reading:
    """The facts and kinds of report in cleaned lines of a text of that kind."""
    text = CleanText(lines)
    gather = Gather()
    _read_rare("collect_env", text, gather)
    nvidia_smi.read(lines, gather)
    for name in ("smi_query", "dcgm", "nvlink", "container_cli"):
        _read_rare(name, text, gather)
    packages.read(lines, gather)
    for name in ("kernel_log", "fabric"):
        _read_rare(name, text, gather)
    mentions.read(text, gather)
    if text.may_hold(precision.WORDS):
        precision.read(text, gather)
    recognise(text, gather)
    return Reading(
        machine=gather.machine(),
        text=text,
        recognised=tuple(gather.recognised),
        kind=kind,
        origins=dict(gather.origins),
        failures=tracebacks.read(text),
    )


# every text in which one of these readers finds something contains one of its words
_RARE: Mapping[str, tuple[str, ...]] = {
    "collect_env": (
        *("pytorch version", "used to build pytorch", "is cuda available", "gpu models and configuration"),
        *("os:", "os :", "nvidia driver version", "cudnn version", "libc version", "python version", "python platform"),
        *(f"{digit}:" for digit in range(10)),
    ),
    "smi_query": (
        *("gpu 00", "<gpu id", "</", "ecc mode", "ecc errors", "remapped rows", "retired pages", "memory usage"),
        *("gpu link info", "reasons", "mig mode", "vgpu software", "reset status", "power readings", "max clocks"),
        *("current temp", "slowdown temp", "shutdown temp"),
    ),
    "dcgm": ("|", "dcgm", "test_categories", "health monitor report", "diagnostic"),
    "nvlink": ("link", "gpuid", "sys", "node", "phb", "pxb", "pix", "psb", *(f"nv{digit}" for digit in range(10))),
    "container_cli": (
        *("nvrm version:", "cuda version:", "device index:", "model:", "gpu uuid:", "bus location:", "architecture:"),
    ),
    "kernel_log": ("nvrm", "xid", "kill", "pci", "suspend", "hibernat", "nvidia", "lockdown", "key was", "aer:",
                   "rminit"),
    "fabric": ("[tid ", "nvswitch"),
}  # fmt: skip


def _read_rare(name: str, text: CleanText, gather: Gather) -> None:
    """Call a reader that is imported only if the text may need it."""
    # link counts may refer to a GPU that another report named
    if text.may_hold(_RARE[name]) or (name == "nvlink" and gather.gpu_indices()):
        import_module(f"gpudoc.facts.readers.{name}").read(text.lines, gather)


def read_machine(machine: Machine) -> Reading | None:
    """The messages of a live machine's torch (its import error, failed kernels), or None if there are none.

    Torch's warnings and the messages of NVML and the kernel are left to the probes, which know the codes behind them.
    """
    said: list[tuple[str, Fact[str]]] = [("torch import", machine.torch.import_error)]
    checks = machine.torch.kernel_checks
    said += [(f"kernel on GPU {c.device}", c.error) for c in (() if isinstance(checks, Absent) else checks)]
    lines = tuple(
        Line(0, part, source)
        for source, words in said
        if not isinstance(words, Absent)
        for part in words.splitlines()
        if part.strip()
    )
    if not lines:
        return None
    return Reading(machine=machine, text=CleanText(lines), recognised=("machine",))


def read_document(data: Data) -> Mapping[str, object] | None:
    """The JSON object in `data` if it is one of gpudoc's own documents, else None."""
    head = data[:4_000].lstrip(b"\xef\xbb\xbf \r\n\t")
    if not head.startswith(b"{") or b'"schema"' not in data[:200_000]:
        return None
    try:
        document = json.loads(data[:])
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("gpudoc."):
        return document
    return None


def load_stdin() -> Data:
    """The bytes of standard input, unpacked if gzip wrote them; GpudocError if standard input is a terminal."""
    import sys

    if sys.stdin.isatty():
        raise GpudocError("- reads standard input, but nothing is piped into it", hint="gpudoc doctor - < train.log")
    data = sys.stdin.buffer.read(_MOST_HELD_BYTES + 1)
    if len(data) > _MOST_HELD_BYTES:
        raise GpudocError(
            f"standard input is larger than {_MOST_HELD_BYTES >> 20} MiB",
            hint="gpudoc doctor train.log reads a file of any size; or: tail -c 100M train.log | gpudoc doctor -",
        )
    return _as_log(data, _STDIN)
