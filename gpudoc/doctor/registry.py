"""Everything doctor knows: the causes by id, the facts that rule them out, and the finders in the order of use.

A cause is a row of knowledge/causes. A sign that a message alone shows is a row of knowledge/signatures, which
`signatures` finds. A judgement that takes arithmetic or a comparison of facts is code: a file under causes/ exports it
in FINDERS. The finders that judge a running job are `causes.job.FINDERS`, those for a profiler's trace
`causes.step_trace.FINDERS`: they are imported with the code that watches and reads traces, and used for nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from gpudoc.doctor import causes, signatures
from gpudoc.doctor.model import Advise, Cause, Evidence, Finder, Finding, Remedy, Setting, Skipped
from gpudoc.doctor.remedies import take_steps
from gpudoc.doctor.signatures import small_shares
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Machine, fact_at
from gpudoc.facts.readers.model import CleanText
from gpudoc.frozen import dataclass
from gpudoc.knowledge.cause_rows import facts_asked_for, own_rows, parse_row, ruled_out_by
from gpudoc.knowledge.signature_rows import RowError

if TYPE_CHECKING:
    FINDERS: tuple[Finder, ...]

_KEYS = {"id", "title", "meaning", "why", "fix", "sources"}
_RULED_OUT = "ruled_out_by"
_MORE_KEYS = {"family", "severity", "explains", _RULED_OUT}
_DEFAULT = "default"


class Catalogue(Mapping[str, Cause]):
    """Every cause by its id, in the order of the areas; a row is parsed on first use."""

    def __init__(self, rows: Mapping[str, Mapping[str, str]]) -> None:
        self._texts = {cause_id: text for of_area in rows.values() for cause_id, text in of_area.items()}
        self._causes: dict[str, Cause] = {}

    def __getitem__(self, cause_id: str) -> Cause:
        if cause_id not in self._causes:
            self._causes[cause_id] = _cause(parse_row(self._texts[cause_id]))
        return self._causes[cause_id]

    def __contains__(self, cause_id: object) -> bool:
        return cause_id in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _cause(row: Mapping[str, object]) -> Cause:
    if wrong := (row.keys() ^ _KEYS) - _MORE_KEYS:
        raise RowError(f"knowledge/causes: {row['id']}: lacks or does not know {', '.join(sorted(wrong))}")
    told = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items() if key != _RULED_OUT}
    return Cause(**cast(dict[str, Any], {**told, "fix": _advise(row["fix"])}))


def _advise(fix: object) -> Advise:
    """The steps of a row: a list, or one list for each packager or place that differs from `default`."""

    def advise(setting: Setting) -> tuple[Remedy, ...]:
        steps = fix
        if isinstance(fix, dict):
            steps = fix.get(setting.packager) or fix.get(setting.place) or fix[_DEFAULT]
        return take_steps(cast(Sequence[object], steps), setting)

    return advise


def fill(finding: Finding, catalogue: Mapping[str, Cause], setting: Setting) -> Finding:
    """The finding, with its cause's title, reason, steps and source for those that it lacks."""
    cause = catalogue.get(finding.id)
    if cause is None:
        return finding
    return replace(
        finding,
        title=finding.title or cause.title,
        why=finding.why or cause.why,
        fix=finding.fix or (finding.advise or cause.fix)(replace(setting, cards=finding.cards)),
        url=finding.url or (cause.sources[0] if cause.sources else ""),
    )


CATALOGUE: Mapping[str, Cause] = Catalogue(own_rows())


def _finders_of(names: Iterable[str]) -> Iterator[Finder]:
    for name in names:
        yield from import_module(f"{causes.__name__}.{name}").FINDERS


def __getattr__(name: str) -> object:
    # a text needs a few of the files, a machine all of them
    if name != "FINDERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # a file may export another file's finders with its own
    found = globals()[name] = tuple(dict.fromkeys((*_finders_of(FILES), *signatures.FINDERS)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The words and facts of which a text must have one before the finders of a file can find anything in it.

    Words are in lower case and may be wrapped in the text. `dumps` opens the gate for PyTorch's own dumps, `ends` for
    the end of a job of several ranks; a gate without any condition is always open.
    """

    words: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    dumps: bool = False
    ends: bool = False

    def is_open(self, evidence: Evidence) -> bool:
        """Whether the finders behind the gate are used for this evidence."""
        reading = evidence.reading
        if reading is None or not (self.words or self.facts or self.dumps or self.ends):
            return True
        if (self.ends and evidence.end is not None) or (self.dumps and (reading.traces or reading.snapshots)):
            return True
        if any(not isinstance(fact_at(evidence.machine, path), Absent) for path in self.facts):
            return True
        return any(word in reading.text.lowered for word in self.words)


_NO_KERNEL = ("no kernel image", "device function", "nokernelimage", "nobinaryfor")
_IS_NO_NUMBER = (" is nan", " are nan", " was nan", " is inf", " are inf", " was inf")
# the files with finders, in the order of use: between equal findings, the earlier file's comes first;
# None for files that only apply to a machine
FILES: Mapping[str, Gate | None] = {
    "attempts": Gate(ends=True),
    "builds": None,
    "chain": None,
    "checkpoint_keys": Gate(words=("unexpected",)),
    "contradictions": Gate(words=("no_device", "nodevice", "is_available", "no cuda", "no hip", "match dso",
                                  "nvidia-smi", "mps", "bf16", *_NO_KERNEL)),
    "connection": None,
    "tool_results": Gate(words=("link width",), facts=("tests", "gpus")),
    "dumps": Gate(dumps=True),
    "error_numbers": Gate(),
    "exceptions": Gate(),
    "first_gpu": Gate(facts=("gpus",)),
    "gpu_counts": None,
    "gpu_health": Gate(facts=("gpus",)),
    "gpu_links": Gate(facts=("gpus",)),
    "gpu_use": None,
    "holders": Gate(facts=("gpus",)),
    "packages": Gate(facts=("python.packages",)),
    "kernel_events": Gate(facts=("kernel_log",)),
    "libraries": Gate(words=("shared object", "system path", "could not ", "unable to", "failed to", "cannot ",
                             "can not ", "can't ", "symbol", "built for", *_NO_KERNEL)),
    "limits": None,
    "losses": Gate(words=("loss", "nan")),
    "memory": Gate(),
    "function_calls": Gate(words=("function calls",)),
    "builds_in_text": Gate(words=("pytorch.org/whl", "pip install", "pip3 install", "+cu", "nvrm version",
                                  "reported version"),
                           facts=("torch.accelerator", "driver.module_version")),
    "archs_in_text": Gate(words=("cuda capability supported", *_NO_KERNEL), facts=("gpus",)),
    "tensors": Gate(words=("tokenizer", "running this sequence", "loss scale", *_IS_NO_NUMBER)),
    "visibility": Gate(words=("visible_devices",), facts=("environment",)),
}  # fmt: skip


def finders_for(evidence: Evidence) -> tuple[Finder, ...]:
    """The finders that can find something in this evidence or say why they cannot look; only a few for a text."""
    if evidence.source != "file" or evidence.reading is None:
        return globals().get("FINDERS") or __getattr__("FINDERS")  # type: ignore[return-value]
    opened = (name for name, gate in FILES.items() if gate is not None and gate.is_open(evidence))
    return tuple(dict.fromkeys((*_finders_of(opened), *signatures.FINDERS)))


def no_such_cause(name: str) -> GpudocError:
    """The error for an id that is not in the catalogue, with the nearest id or those that contain it as a word."""
    near = get_close_matches(name, CATALOGUE, n=1)
    like = [one for one in CATALOGUE if name and name.lower() in one.split("_")]
    if near:
        hint = f"did you mean {near[0]}?"
    elif like:
        hint = f"one of {', '.join(sorted(like))}"
    else:
        hint = "gpudoc doctor --list"
    return GpudocError(f"no such cause: {name!r}", hint=hint)


def ruled_out(machine: Machine, unsettled: Collection[str]) -> tuple[str, ...]:
    """The causes that a text's facts rule out, except `unsettled` ones, which were found or could not be judged."""
    return tuple(
        cause
        for cause, paths in ruled_out_by().items()
        if cause not in unsettled and all(_held(machine, path.split(".")) for path in paths)
    )


def too_small(text: CleanText, catalogue: Mapping[str, Cause]) -> set[str]:
    """The causes that take hardly any time by the text's figures, and the causes that would show as one of them."""
    small = small_shares(text)
    return small | {cause.id for cause in catalogue.values() if small.intersection(cause.explains)}


def not_asked(machine: Machine, passed: Collection[str]) -> tuple[Skipped, ...]:
    """The causes that passed only because Windows and macOS do not provide the fact; none on Linux."""
    if machine.host.system not in ("Windows", "Darwin"):
        return ()
    asked = facts_asked_for()
    missing = ((cause, path, fact_at(machine, path)) for cause in passed if (path := asked.get(cause)) is not None)
    return tuple(Skipped(cause, f"{path}: {f.reason}") for cause, path, f in missing if isinstance(f, Absent))


def _held(whole: object, path: list[str]) -> bool:
    """Whether the fact at `path` is known, for each member of a list on the way."""
    if isinstance(whole, Absent):
        return False
    if isinstance(whole, tuple):
        return bool(whole) and (not path or all(_held(member, path) for member in whole))
    return True if not path else _held(getattr(whole, path[0]), path[1:])
