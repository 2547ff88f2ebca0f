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


def torch_build(setting: Setting) -> tuple[Remedy, ...]:
    """Replace torch and its companions by a build that fits the GPU and driver of the evidence."""
    from gpudoc.knowledge.wheels import index_url, suggest

    cuda = suggest(setting.capability, setting.driver_cuda) if setting.capability is not None else (12, 6)
    if cuda is None:
        return (
            do(
                "No current wheel of PyTorch has code for this GPU under this driver: update the driver, or use "
                "an older torch."
            ),
        )
    packages = "torch torchvision torchaudio"
    return (
        do(
            f"Replace it by PyTorch's own build for CUDA {cuda[0]}.{cuda[1]}"
            + ("." if setting.capability is not None else "; a GPU of the RTX 50 series or newer needs 12.9 or later."),
            f"{remove(setting, packages)}\n{install(setting, f'{packages} --index-url {index_url(cuda)}')}",
        ),
        do("Check it.", 'python -c "import torch; print(torch.__version__, torch.cuda.is_available())"'),
    )


def driver_update(setting: Setting) -> tuple[Remedy, ...]:
    """A newer driver, in the way of the place; or a torch that the present one runs."""
    older = do("Or keep the driver and take a torch that is built for an older CUDA.", older_torch(setting))
    match setting.place:
        case "windows" | "wsl":
            return (do("Install a current NVIDIA driver in Windows (not inside WSL), then restart."), older)
        case "docker" | "kubernetes":
            update = as_root(setting, "apt install nvidia-driver-580", "dnf install nvidia-driver", "pacman -S nvidia")
            return (do("Update the driver on the host; a container cannot bring its own.", update, root=True), older)
        case "slurm" | "colab" | "notebook":
            return (older, do("The driver itself is the administrator's to update."))
        case _:
            update = as_root(setting, "apt install nvidia-driver-580", "dnf install nvidia-driver", "pacman -S nvidia")
            return (do("Update the driver and restart.", update, root=True), older)


def older_torch(setting: Setting) -> str:
    """The command that installs a torch that the evidence's driver runs; the CUDA 12.6 build when it is unknown."""
    from gpudoc.knowledge.wheels import index_url

    old = setting.driver_cuda is not None and setting.driver_cuda[0] < 12
    cuda = (11, 8) if old else (12, 6)
    return install(setting, f"torch --index-url {index_url(cuda)}")
