"""The parts that text finders share: patterns compiled once, a line as evidence, and the facts that a text states."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Skip, observe
from gpudoc.facts.model import Gpu, Machine, known
from gpudoc.facts.readers.model import CleanText, Mention
from gpudoc.facts.readers.words import Alternative, Words
from gpudoc.knowledge.compatibility import capability_of, default_cuda
from gpudoc.knowledge.signature_rows import REGEX, vocabulary
from gpudoc.patterns import Pattern

_SPECIAL = Pattern(r"[.^$*+?{}\[\]\\|()]")


@functools.cache
def as_words(patterns: tuple[str, ...]) -> Words:
    """Patterns of a row as one search: literal text, or a regular expression after `re:`."""
    return Words(*(p.removeprefix(REGEX) if p.startswith(REGEX) else _SPECIAL.sub(r"\\\g<0>", p) for p in patterns))


class Listed(Words):
    """A list of vocabulary.yaml by its name; reads the file at the first search."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the list."""
        return vocabulary(self._name)

    @property
    def _alternatives(self) -> tuple[Alternative, ...]:
        if self._known is None:
            self._known = as_words(self.patterns)._alternatives
        return self._known


# compiled patterns by their alternatives: rules are used many times in one process
_known: dict[tuple[str, ...], Words] = {}


def words(*alternatives: str) -> Words:
    """One case-insensitive pattern of several; a space in it matches any white space, so wrapped lines match too."""
    if alternatives not in _known:
        _known[alternatives] = Words(*alternatives)
    return _known[alternatives]


# "torch.cuda.is_available() ... False", as written in a session, a sentence or another language
UNAVAILABLE = (
    r"is_available(?:\(\))?(?:(?!\btrue\b|is_available)[^\n]){0,24}?\W{0,8}(?:Out\[\d+\]: ?)?(?:False|Flase)\b"
)


def quote(mention: Mention, fact: str = "text") -> Observation:
    """The line of a mention as evidence."""
    return observe(fact, mention.line.text, mention.line.origin, words=mention[0].split("\n")[0][:40])


def by_text(cause_id: str, find: Callable[[CleanText], Iterator[Finding | Skip]]) -> Finder:
    """A finder that needs only the text."""
    return text_finder(cause_id, lambda text, _: find(text))


def text_finder(cause_id: str, find: Callable[[CleanText, Evidence], Iterator[Finding | Skip]]) -> Finder:
    """A finder that needs the text and its evidence."""

    def look(evidence: Evidence) -> Iterator[Finding | Skip]:
        assert evidence.reading is not None
        yield from find(evidence.reading.text, evidence)

    return Finder(id=cause_id, find=look, reads="text")


NOT_COMPATIBLE = words(
    r"is not compatible with the current PyTorch",
    r"no longer supports this GPU",
    r"no kernel image is available",
    "hipErrorNoBinaryForGpu",
    "cudaErrorNoKernelImageForDevice",
    r"minimum (?:and maximum )?cuda capability supported",
    "invalid device function",
    r"Unable to find code object",
)


# torch's own warning is about torch's kernels
OF_TORCH = words(r"is not compatible with the current PyTorch", r"no longer supports this GPU")
# the source file that a message about a missing kernel names, after or before the message
_AFTER = Pattern(r"(?is)no kernel image is available.{0,260}?(?P<file>[\w./\\-]+\.(?:cuh?|cpp|cc|hpp))\b")
_BEFORE = Pattern(
    r"(?i)(?<![\w./\\-])(?P<file>[\w./\\-]*(?:csrc|_template\.h|\.cuh?)\S{0,80})(?: line=\d+ error=\d+ ?:)? ?"
    r"(?:no kernel image is available|invalid device function)"
)
# the check that an extension makes after its own kernel; torch's message begins differently
_OWN_CHECK = Pattern(
    r"(?i)(?P<file>CUDA kernel failed|cudaCheckError\(\) failed|\berror in \w[\w ]{1,60}|\bkernel (?:\w+ )?failed) ?: ?"
    r"(?:no kernel image|invalid device function)"
)
_TORCHS_OWN = Pattern(r"(?i)aten[/\\]|c10[/\\]|\bTHC|torch[/\\]csrc|caffe2|[/\\]pytorch[_/\\]|cutorch")


def other_source(text: CleanText) -> Mention | None:
    """The mention of a missing kernel by a source file or a check that is not torch's own; None if there is none."""
    for pattern in (_OWN_CHECK, _BEFORE, _AFTER):
        for named in text.find_all(pattern, most=4):
            if _TORCHS_OWN.search(named["file"]) is None:
                return named
    return None


def origin_of(evidence: Evidence, fact: str) -> str:
    """Where a fact was read: 'line 18'."""
    return evidence.reading.origins.get(fact, "the text") if evidence.reading else ""


def seen_fact(evidence: Evidence, fact: str, value: object) -> Observation:
    """A fact of the text as evidence, with the line it was read from."""
    return observe(fact, value, origin_of(evidence, fact))


def reported(
    cause_id: str, find: Callable[[CleanText, Evidence], Iterator[Finding | Skip]], *, though_it_works: bool = False
) -> Finder:
    """A finder for a text's report on its machine, used unless torch says that CUDA is available.

    On a live machine it finds nothing: finders of the machine's facts know more.
    """

    def look(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
        if evidence.source != "machine" and (though_it_works or evidence.machine.torch.is_available is not True):
            yield from find(text, evidence)

    return text_finder(cause_id, look)


def gpu_capability(gpu: Gpu) -> tuple[int, int] | None:
    """The compute capability of a GPU in a text: as stated, or from the card's name; None if unknown."""
    return known(gpu.capability) or capability_of(known(gpu.name) or "")


def built_for(machine: Machine) -> tuple[int, int] | None:
    """The CUDA of the text's torch: as stated, from conda's toolkit package, or that of PyPI's Linux wheel."""
    stated = known(machine.torch.cuda_version)
    if stated is not None:
        return stated
    packages = known(machine.python.packages) or ()
    for package in packages:
        if package.name in ("cudatoolkit", "pytorch-cuda", "cuda-runtime"):
            match = Pattern(r"(\d+)\.(\d+)").match(package.version)
            if match:
                return int(match[1]), int(match[2])
    version, accelerator = known(machine.torch.version), known(machine.torch.accelerator)
    from_conda = any(p.name == "pytorch" for p in packages)
    if version is None or "+" in version or accelerator is not None or from_conda:
        return None
    if known(machine.host.system) in ("Windows", "Darwin") or known(machine.host.jetson):
        return None
    return default_cuda(version)
