"""Python exceptions in a text, frozen: each has its frames, and the exceptions of one failure form a chain.

A frame is one line of a traceback, as Python, IPython, Colab and rich print it, or the part that a paste left of it.
Its path decides whose code it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from gpudoc.frozen import dataclass
from gpudoc.patterns import Match, Pattern

if TYPE_CHECKING:
    from gpudoc.facts.readers.model import Line

Owner = Literal["user", "library", "torch", "standard"]
Style = Literal["plain", "notebook", "rich", "pytest"]
Link = Literal["", "handling", "direct", "original"]

# exceptions that ask a program to end are not errors
_STOPS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit")
# Python's names for typed or pasted code; other names in angle brackets are Python's own code
_TYPED = ("<stdin", "<ipython", "<string", "<cell", "<console", "<input", "<command", "cell in", "input in")
# pip's and Debian's folder of packages, and what setuptools unpacked
_PACKAGES = ("site-packages/", "dist-packages/")
_TORCH_PARTS = (
    r"nn|optim|autograd|utils|cuda|distributed|_dynamo|_inductor|_functorch|_higher_order_ops|fx|jit|amp|multiprocessing|"
    r"_ops\.py|_tensor\.py|functional\.py|serialization\.py|storage\.py|random\.py|export|ao|fft|linalg|sparse|_refs|"
    r"_prims|_meta_registrations\.py|_subclasses|_jit_internal\.py|_library|__init__\.py"
)
_TORCH = Pattern(rf"(?:^|/)torch/(?:{_TORCH_PARTS})(?:/|$)")
_STANDARD = Pattern(
    r"(?i)/lib(?:64)?/python3?(?:\.\d+)?t?/|/python\d*\.zip/|/python3?\d*/lib/|/envs/[^/]+/lib/|conda\d?/lib/|"
    r"/python3?\.\d+(?:\.\d+)?/lib/|"
    # an installation under another name
    r"/lib/(?:multiprocessing|concurrent/futures|importlib|asyncio)/"
)
_LIBRARIES = (
    r"transformers|accelerate|datasets|diffusers|peft|trl|tokenizers|huggingface_hub|lightning|pytorch_lightning|"
    r"lightning_fabric|torchvision|torchaudio|deepspeed|vllm|timm|numpy|pandas|scipy|sklearn|PIL|hydra|omegaconf|ray|wandb"
)
# a library that is installed from its checkout, or whose path was cut before the library's name
_LIBRARY = Pattern(rf"/src/(?:{_LIBRARIES})/|^(?:{_LIBRARIES})/|\.egg/")
# launchers as pip installs them: bin/torchrun, Scripts\accelerate.exe\__main__.py
_LAUNCHER = Pattern(r"(?i)/bin/[\w-]+$|/scripts/[\w-]+\.exe/|^/?usr/bin/[\w-]+$")
_FRAME = Pattern(r"File \"([^\"]{1,500})\", line (\d+)(?:, in (.+)|[,:]?$)")
# a paste that begins within the line: 'data/store.py", line 87, in reset'
_CUT_FRAME = Pattern(r"(?:[File]{0,4} ?\")?([^\s\":]{1,300}(?:\.py|>))\", line (\d+)(?:, in (.+)|[,:]?$)")
_CELL = Pattern(r"((?:Cell In|Input In) ?\[\d{0,6}\])(?:, line (\d+))?(?:, in (.+))?$")
_NOTEBOOK_CELL = Pattern(r"(\S.{0,300}?\.ipynb Cell \d{1,6})(?:,? line (\d+))?(?: in (.+))?$")
_IPYTHON_FILE = Pattern(r"File (\S.*?\.\w{2,4}|<[\w-]+>):(\d+)(?:, in (.+))?$")
_OLD_IPYTHON = Pattern(r"(\S+(?:\.py|>)) in (\S.*)$")
_RICH_FRAME = Pattern(r"([^\s:]\S*\.py|<[\w-]+>):(\d+)(?: in (\S+))?$")
# Colab makes a link of each file
_LINK = Pattern(r"\[([^\]\s]{1,400})\]\(https?://[^)\s]{1,200}\)")
# the source after the name of its function, if a paste joined the two lines
_GLUED = Pattern(r"(<[^<>]{1,40}>|\w+) (\S.*)$")
# a post begins with its title, which people take from the last line of their paste
TITLE_LINES = 3
_QUOTES = ("`", "'", '"')
_SAID = Pattern(r"(?<![\w.])((?:[a-z_]\w*\.){0,6}[A-Z]\w*(?:Error|Exception))['\"`]?: ?(\S.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFrame:
    """One frame of a traceback: `line` is 0, `function` and `source` are empty if the text does not show them."""

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

    `link` is its relation to the exception before it in the chain: 'handling' if it was raised while that one was
    handled, 'direct' if it was raised because of that one, 'original' if that one only passes it on. `forward` are the
    frames of the forward call if autograd names it. `first` and `last` are its places among the lines of the text.
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
    """The exceptions of one failure as they were printed; `rank` is the prefix of its lines, '' without one."""

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


def owner_of(path: str) -> Owner:
    """The owner of the code in a file; it is the user if the path does not look like a library, torch or Python."""
    plain = path.replace("\\", "/")
    if plain.startswith("<") or plain[:4] in ("Cell", "Inpu"):
        return "user" if plain.lower().startswith(_TYPED) else "standard"
    for folder in _PACKAGES:
        at = plain.rfind(folder)
        if at >= 0:
            inside = plain[at + len(folder) :]
            return "torch" if inside.startswith(("torch/", "functorch/")) else "library"
    if _TORCH.search(plain):
        return "torch"
    if _LIBRARY.search(plain) or _LAUNCHER.search(plain):
        return "library"
    return "standard" if _STANDARD.search(plain) else "user"


def read_frame(bare: str, style: Style, quoted: str, origin: str) -> tuple[CodeFrame, Style] | None:
    """The frame on the line and the style in which it is printed; None if the line is not a frame.

    `style` is the style of the traceback around it, `quoted` is the line above, which may hold the beginning of a path.
    """
    if '", line ' in bare:
        return _of_python(_FRAME.search(bare) or _CUT_FRAME.match(bare), origin)
    found: Match[str] | None = None
    if bare.startswith(("Cell In", "Input In")):
        found, style = _CELL.match(bare), "notebook"
    elif ".ipynb Cell " in bare:
        found, style = _NOTEBOOK_CELL.match(bare), "notebook"
    elif bare.startswith("File "):
        found = _IPYTHON_FILE.match(bare)
    elif " in " in bare and (style == "notebook" or "ipython-input-" in bare or "/ipykernel_" in bare):
        old = _OLD_IPYTHON.match(_LINK.sub(r"\1", bare))
        return None if old is None else (CodeFrame(file=old[1], function=_function(old[2]), origin=origin), "notebook")
    elif style == "rich" and ":" in bare:
        bare = bare.strip("|\u2502 ")
        found = _RICH_FRAME.match(quoted + bare) or _RICH_FRAME.match(bare)
    if found is None:
        return None
    return CodeFrame(file=found[1], line=int(found[2] or 0), function=_function(found[3] or ""), origin=origin), style


def _of_python(found: Match[str] | None, origin: str) -> tuple[CodeFrame, Style] | None:
    if found is None:
        return None
    glued = _GLUED.match(found[3] or "")
    function, source = (glued[1], glued[2]) if glued is not None else (found[3] or "", "")
    frame = CodeFrame(file=found[1], line=int(found[2]), function=_function(function), source=source, origin=origin)
    return frame, "plain"


def _function(text: str) -> str:
    """The name of a function that IPython shows with its arguments, '' for a cell."""
    name = text.split("(")[0].strip()
    return "" if name.startswith("<cell") else name


def quoted(lines: Sequence[Line]) -> list[ErrorChain]:
    """The first exception that a sentence quotes; empty if there is none."""
    for place, line in enumerate(lines):
        found = _SAID.search(line.text) if "rror" in line.text or "xception" in line.text else None
        if found is not None:
            message = _unquoted(found[2], line.text[: found.start()][-1:])
            error = PythonError(kind=found[1], message=message, origin=line.origin, first=place, last=place)
            return [ErrorChain(errors=(error,))]
    return []


def ended_by_title(chain: ErrorChain, titled: PythonError) -> ErrorChain:
    """The chain, with the title's exception at the end of its cut traceback unless the chain names another one."""
    cut, passed_on = chain.errors[-1], {error.name for error in chain.errors if error.kind}
    if cut.kind or not cut.frames or (passed_on and passed_on != {titled.name}):
        return chain
    message = titled.message.rpartition(f"{titled.name}: ")[2]
    named = replace(cut, kind=titled.kind, message=message, origin=titled.origin)
    return replace(chain, errors=(*chain.errors[:-1], named))


def _unquoted(message: str, before: str) -> str:
    """The message without the closing mark of the quotation that begins before it, and without the words after that."""
    if before not in _QUOTES or message.count(before) % 2 == 0:
        return message.rstrip()
    end = message.rfind(before) if before == "`" or message.rstrip(" .,;?!").endswith(before) else len(message)
    return message[:end].rstrip()
