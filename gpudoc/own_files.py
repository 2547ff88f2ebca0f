"""The files of this package, which are on a disk or inside the archive that `make zipapp` writes."""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from zipimport import zipimporter

_own = getattr(__spec__, "loader", None)
_loader = _own if isinstance(_own, zipimporter) else SourceFileLoader(__name__, __file__)
IN_ARCHIVE = isinstance(_loader, zipimporter)
ARCHIVE = "gpudoc.pyz"
# the answer to a command that the archive lacks
INSTALL = f'{ARCHIVE} contains only doctor; for the rest install gpudoc from a clone: pip install ".[train]"'


def read_own_file(path: Path) -> str:
    """The text of a file below this package, or of any other file outside an archive. OSError if there is none."""
    return read_own_bytes(path).decode("utf-8").replace("\r\n", "\n")


def read_own_bytes(path: Path) -> bytes:
    """The bytes of such a file as they are stored."""
    place = str(path)
    if isinstance(_loader, zipimporter) and path.is_relative_to(Path(_loader.archive)):
        # a Path drops part of the archive's name, such as ./ of ./gpudoc.pyz; the importer keeps it
        place = f"{_loader.archive}{os.sep}{path.relative_to(Path(_loader.archive))}"
    return _loader.get_data(place)


def script_arguments(path: Path) -> list[str]:
    """The arguments for a Python to run one of our files as a program: its path, or its text if it is in an archive."""
    return ["-c", read_own_file(path)] if IN_ARCHIVE else [str(path)]
