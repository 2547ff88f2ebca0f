"""Everything doctor knows of machines and texts: the causes by id, and the finders in the order they are asked.

A cause is a row of knowledge/causes; what a message alone shows is a row of knowledge/signatures, which `signatures`
finds. What takes arithmetic or a comparison of facts is code: what a file under causes/ exports as FINDERS. Those that
judge a job while it runs are `causes.watched.FINDERS`, those that judge a profiler's trace `causes.traced.FINDERS`:
they come with all that watches and reads traces, and are asked of nothing else.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from gpudoc.doctor import causes, signatures
from gpudoc.doctor.catalogue import Catalogue
from gpudoc.doctor.model import Cause, Evidence, Finder
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, fact_at
from gpudoc.frozen import dataclass
from gpudoc.knowledge.cause_rows import own_rows

if TYPE_CHECKING:
    FINDERS: tuple[Finder, ...]

CATALOGUE: Mapping[str, Cause] = Catalogue(own_rows())


def _finders() -> Iterator[Finder]:
    for module in pkgutil.iter_modules(causes.__path__, f"{causes.__name__}."):
        if "watched" not in module.name and "traced" not in module.name:
            yield from getattr(import_module(module.name), "FINDERS", ())


def __getattr__(name: str) -> object:
    # a text needs few of the files, a machine all of them
    if name != "FINDERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # a file may hand on another's finders with its own
    found = globals()[name] = tuple(dict.fromkeys((*_finders(), *signatures.FINDERS)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a text must hold before the finders of a file can find anything in it: one of these words or facts.

    Words are in small letters and stand in the text as it is or wrapped. `dumps` opens it for what PyTorch dumped of
    itself, `ends` for the end of a job of several ranks; one without anything is always open.
    """

    words: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    dumps: bool = False
    ends: bool = False

    def is_open(self, evidence: Evidence) -> bool:
        """Whether the finders behind it are asked of this evidence."""
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
# the files that judge texts, in the order in which they are asked
TEXT_GATES: Mapping[str, Gate] = {
    "attempts": Gate(ends=True),
    "checkpoint_keys": Gate(words=("unexpected",)),
    "compared": Gate(words=("no_device", "nodevice", "is_available", "no cuda", "no hip", "match dso", "nvidia-smi",
                            "mps", "bf16", *_NO_KERNEL)),
    "diagnosed": Gate(words=("link width",), facts=("tests", "gpus")),
    "dumped": Gate(dumps=True),
    "error_numbers": Gate(),
    "exceptions": Gate(),
    "first_gpu": Gate(facts=("gpus",)),
    "gpu_health": Gate(facts=("gpus",)),
    "gpu_links": Gate(facts=("gpus",)),
    "holders": Gate(facts=("gpus",)),
    "installed": Gate(facts=("python.packages",)),
    "kernel_events": Gate(facts=("kernel_log",)),
    "libraries": Gate(words=("shared object", "system path", "could not ", "unable to", "failed to", "cannot ",
                             "can not ", "can't ", "symbol", "built for", *_NO_KERNEL)),
    "losses": Gate(words=("loss", "nan")),
    "memory": Gate(),
    "profiled": Gate(words=("function calls",)),
    "reported": Gate(words=("pytorch.org/whl", "pip install", "pip3 install", "+cu", "nvrm version",
                            "reported version"),
                     facts=("torch.accelerator", "driver.module_version")),
    "reported_archs": Gate(words=("cuda capability supported", *_NO_KERNEL), facts=("gpus",)),
    "tensors": Gate(words=("tokenizer", "running this sequence", "loss scale", *_IS_NO_NUMBER)),
    "visibility": Gate(words=("visible_devices",), facts=("environment",)),
}  # fmt: skip


def finders_for(evidence: Evidence) -> tuple[Finder, ...]:
    """The finders that can find something in this evidence, or say why they cannot look; of a text few of them."""
    if evidence.source != "file" or evidence.reading is None:
        return globals().get("FINDERS") or __getattr__("FINDERS")  # type: ignore[return-value]
    found: dict[Finder, None] = {}
    for name, gate in TEXT_GATES.items():
        if gate.is_open(evidence):
            found |= dict.fromkeys(import_module(f"{causes.__name__}.{name}").FINDERS)
    return (*found, *signatures.FINDERS)


def no_such_cause(name: str) -> GpudocError:
    """The error for an id that the catalogue does not have, with the nearest one, or those that begin with the word."""
    near = get_close_matches(name, CATALOGUE, n=1)
    like = [one for one in CATALOGUE if name and name.lower() in one.split("_")]
    if near:
        hint = f"did you mean {near[0]}?"
    elif like:
        hint = f"one of {', '.join(sorted(like))}"
    else:
        hint = "gpudoc doctor --list"
    return GpudocError(f"no such cause: {name!r}", hint=hint)
