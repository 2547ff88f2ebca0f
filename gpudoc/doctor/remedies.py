"""Building blocks of remedies: commands in the dialect of the packager and the place that the evidence describes."""

from __future__ import annotations

from gpudoc.doctor.model import Advise, Packager, Remedy, Setting

_INSTALL: dict[Packager, str] = {
    "pip": "pip install",
    "conda": "pip install",
    "uv": "uv pip install",
    "poetry": "pip install",
}
_REMOVE: dict[Packager, str] = {
    "pip": "pip uninstall -y",
    "conda": "pip uninstall -y",
    "uv": "uv pip uninstall",
    "poetry": "pip uninstall -y",
}


def do(say: str, run: str = "", *, root: bool = False) -> Remedy:
    """One step: prose, the command, and whether it needs root."""
    return Remedy(say=say, run=run, needs_root=root)


def always(*steps: Remedy) -> Advise:
    """Advice that is the same everywhere."""
    return lambda _: steps


def by_place(default: tuple[Remedy, ...], **others: tuple[Remedy, ...]) -> Advise:
    """Advice that depends on where the program runs; keywords are the places that differ from `default`."""
    return lambda setting: others.get(setting.place, default)


def install(setting: Setting, what: str) -> str:
    """`what` installed with the packager of the evidence; in a notebook as a cell magic."""
    magic = "%" if setting.place in ("notebook", "colab") and setting.packager != "uv" else ""
    return f"{magic}{_INSTALL[setting.packager]} {what}"


def remove(setting: Setting, what: str) -> str:
    """`what` uninstalled with the packager of the evidence."""
    magic = "%" if setting.place in ("notebook", "colab") and setting.packager != "uv" else ""
    return f"{magic}{_REMOVE[setting.packager]} {what}"


def as_root(setting: Setting, debian: str, redhat: str, arch: str = "") -> str:
    """The system command of the evidence's distribution; Debian's and Ubuntu's when it is unknown."""
    name = setting.distribution.lower()
    if any(word in name for word in ("red hat", "rhel", "centos", "rocky", "alma", "fedora", "amazon linux", "oracle")):
        return f"sudo {redhat}"
    if arch and any(word in name for word in ("arch", "manjaro", "endeavour")):
        return f"sudo {arch}"
    return f"sudo {debian}"
