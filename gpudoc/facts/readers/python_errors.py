"""Python exceptions of a text, frozen: each with its frames, and those of one failure as a chain."""

from __future__ import annotations

from typing import Literal

from gpudoc.facts.readers.code_paths import Owner, owner_of
from gpudoc.frozen import dataclass

# what asks a program to end is no error of it
_STOPS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit")
Link = Literal["", "handling", "direct", "original"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFrame:
    """One frame of a traceback: `line` 0, `function` and `source` empty where the text does not show them."""

    file: str
    line: int = 0
    function: str = ""
    source: str = ""
    origin: str = ""

    @property
    def owner(self) -> Owner:
        """Whose code it is, judged from the path."""
        return owner_of(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonError:
    """One exception: its type ('' where the text is cut before it), its message, its frames, outermost first.

    `link` says how it came to the one before it in its chain: raised while that was handled, because of it ('direct'),
    or, as 'original', what the one before only passes on. `forward` are the frames of the forward call where autograd
    names it. `first` and `last` are its places among the lines of the text.
    """

    kind: str
    message: str = ""
    frames: tuple[CodeFrame, ...] = ()
    forward: tuple[CodeFrame, ...] = ()
    link: Link = ""
    origin: str = ""
    first: int
    last: int

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.kind.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorChain:
    """The exceptions of one failure as they were printed; `rank` is what stood before its lines, '' without that."""

    errors: tuple[PythonError, ...]
    rank: str = ""

    @property
    def first(self) -> int:
        """The place of its first line."""
        return self.errors[0].first

    @property
    def is_stop(self) -> bool:
        """Whether a person or the program itself only asked it to end."""
        return all(error.name in _STOPS for error in self.errors)

    @property
    def last(self) -> int:
        """The place of its last line."""
        return max(error.last for error in self.errors)
