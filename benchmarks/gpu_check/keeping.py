"""Where a record is kept while a run goes on: written again after each step, elsewhere where the disk is full."""

from __future__ import annotations

import datetime
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.gpu_check.model import Record
from gpudoc.errors import GpudocError
from gpudoc.facts.redact import Redactor
from gpudoc.writing import write_whole

RECORDS = Path(__file__).resolve().parents[2] / "records"


class Keeper:
    """Writes a record whole, with names of people, hosts and folders replaced; says once where that did not work."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path: Path | None = path
        self._places = [path, *_other_places(path.name)]
        self._say = say
        self._refused: set[Path] = set()

    def keep(self, record: Record) -> None:
        """Write it to the first place that takes it; None is the path where none does."""
        text = Redactor.of_this_process().clean(record).to_text()
        for place in self._places:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                self.path = write_whole(place, text, hint="free some space")
            except (GpudocError, OSError) as problem:
                if place not in self._refused:
                    self._say(f"the record is not in {place.parent}: {problem}")
                self._refused.add(place)
            else:
                return
        self.path = None


def _other_places(name: str) -> Iterator[Path]:
    for folder in (tempfile.gettempdir(), "/dev/shm", Path.home()):
        yield Path(folder) / name


def name_of(card: str, began: datetime.datetime) -> str:
    """The file of a run: two on one day have two names."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", card).strip("-") or "no-GPU"
    return f"{began:%Y-%m-%d-%H%M%S}-gpu-{stem}.json"


def records(folder: Path = RECORDS) -> Iterator[tuple[Path, Record]]:
    """Every record of gpu-check in a folder, the oldest first."""
    for path in sorted(folder.glob("*-gpu-*.json")):
        yield path, Record.load(path)


def latest_of(card: str, folder: Path = RECORDS) -> tuple[Path, Record] | None:
    """The newest record of a card of this name."""
    found = [(path, record) for path, record in records(folder) if record.machine.get("gpu0.name") == card]
    return found[-1] if found else None
