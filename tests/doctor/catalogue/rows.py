"""What must hold of every row of the catalogue, whatever family it belongs to."""

from __future__ import annotations

from gpudoc.doctor.model import Cause, Setting

PLACES = ("host", "docker", "kubernetes", "slurm", "notebook", "colab", "wsl", "windows", "macos", "jetson")
PACKAGERS = ("pip", "uv", "conda", "poetry")


def check_row(cause: Cause) -> None:
    """It has a title that fits a line, a meaning, a reason, a source, and steps for every place and packager."""
    assert 0 < len(cause.title) <= 100
    assert len(cause.meaning) > 15
    assert cause.why.endswith(".")
    assert cause.sources
    assert all(source.startswith("https://") for source in cause.sources), cause.id
    for place in PLACES:
        for packager in PACKAGERS:
            steps = cause.fix(Setting(place=place, packager=packager))  # type: ignore[arg-type]
            assert steps, (cause.id, place)
            for step in steps:
                assert step.say.strip(), cause.id
                assert step.needs_root == ("sudo " in step.run) or not step.run.startswith("sudo"), (cause.id, step.run)
