"""Where in the user's own code something was built, and through which framework."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any, Iterator, NamedTuple

_OWN = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")} - {""})
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_FRAMEWORKS = {
    "accelerate": "accelerate",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "lightning_fabric": "lightning",
    "transformers": "transformers",
    "timm": "timm",
}
_MAX_FRAMES = 4


class UserPlace(NamedTuple):
    """The nearest line of the user's own code, the lines that led there, and the framework between it and torch."""

    file: str
    line: int
    through: str
    lines: tuple[str, ...]

    @property
    def short(self) -> str:
        """As `train.py:42`."""
        return at(self.file, self.line)


def find_place() -> UserPlace:
    """The place of the call that is going on; where no line is the user's own, the first that is not torch's."""
    through, nearest = "torch", None
    lines: list[str] = []
    fallback = None
    for frame in frames():
        file, line = frame.f_code.co_filename, frame.f_lineno
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if is_users(file):
            nearest = nearest or (file, line)
            lines.append(at(file, line))
            if len(lines) == _MAX_FRAMES:
                break
        elif nearest is None:
            # the framework nearest to the user is the one whose words they know
            through = _FRAMEWORKS.get(package, through)
            if fallback is None and package not in ("torch", "torchdata") and not _is_library(file):
                fallback = (file, line)
    file, line = nearest or fallback or ("", 0)
    return UserPlace(file, line, through, tuple(lines) or (at(file, line),))


def at(file: str, line: int) -> str:
    """As `train.py:42`."""
    return f"{os.path.basename(file)}:{line}"


def frames() -> Iterator[Any]:
    """The frames of the call that is going on but the hook's own, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN):
            yield frame
        frame = frame.f_back


def is_users(file: str) -> bool:
    """Whether a source file is the user's own: neither Python's, nor an installed package's."""
    if file.startswith("<"):
        return file.startswith(("<stdin>", "<string>", "<ipython"))
    return not any(part in file for part in _PACKAGES) and not _is_library(file)


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or file.startswith("<")
