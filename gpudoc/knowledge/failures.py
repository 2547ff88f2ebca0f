"""The failures that `gpudoc demo` shows: what a program printed, as people paste it, or a script that is slow."""

from __future__ import annotations

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import FOLDER
from gpudoc.own_files import read_own_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure, by the name that people type; `is_job` if its text is a script that runs and is watched."""

    name: str
    title: str
    is_job: bool = False

    @property
    def text(self) -> str:
        """The pasted text, or the script."""
        return read_own_file(FOLDER / "demos" / f"{self.name}.txt")


FAILURES = (
    Failure(name="wheel", title="PyTorch is older than the graphics card"),
    Failure(name="memory", title="the GPU's memory is used up, with the sum that shows why"),
    Failure(name="loader", title="a job runs and is slow: it waits for its data (this one really runs)", is_job=True),
    Failure(name="gpu", title="a GPU died, in the kernel's log"),
    Failure(name="rank", title="one of 64 ranks failed, and the others waited for it"),
    Failure(name="nan", title="the loss became NaN in fp16"),
)
