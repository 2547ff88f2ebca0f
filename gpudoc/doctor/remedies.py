"""Building blocks of remedies: commands in the dialect of the packager and the place that the evidence describes."""

from __future__ import annotations

import math

from gpudoc.doctor.cards import mask_of_the_others, selector
from gpudoc.doctor.model import Remedy, Setting
from gpudoc.facts.model import Absent, Gpu
from gpudoc.knowledge.compatibility import wheel_for


def do(say: str, run: str = "", *, disruptive: bool = False) -> Remedy:
    """One step: prose, the command, and whether it ends work that is going on; root is needed where it says sudo."""
    return Remedy(say=say, run=run, needs_root="sudo " in run, disruptive=disruptive)


def another_card(setting: Setting, say: str) -> tuple[Remedy, ...]:
    """The same program on the GPUs that no finding is about; in words where their numbers are not known."""
    mask = mask_of_the_others(setting)
    if mask:
        return (do(f"{say}.", f"{mask} python train.py"),)
    if setting.num_gpus == 1:
        return (do(f"{say} (this machine has no other)."),)
    return (do(f"{say}; leave this one's number out of CUDA_VISIBLE_DEVICES.", "nvidia-smi -L"),)


def power_limits(setting: Setting, say: str, *, share: float) -> tuple[Remedy, ...]:
    """Each card's limit at `share` of its own (1.0: as built), within its range; no figure where that is unknown."""
    runs = []
    for card in setting.cards:
        watts = _watts(card.facts, share)
        if not selector([card]) or watts is None:
            return (do(f"{say}: nvidia-smi -pl with its -i, within its Min and Max Power Limit."),)
        runs.append(f"sudo nvidia-smi{selector([card])} -pl {watts}")
    if not runs:
        return (do(f"{say}: see which GPU it is, and its Min and Max Power Limit.", "nvidia-smi -q -d POWER"),)
    return (do(f"{say}.", "\n".join(runs)),)


def _watts(gpu: object, share: float) -> int | None:
    if not isinstance(gpu, Gpu):
        return None
    own, least, most = gpu.power_limit_default_w, gpu.power_limit_min_w, gpu.power_limit_max_w
    if isinstance(own, Absent) or isinstance(least, Absent) or isinstance(most, Absent):
        return None
    return int(min(max(own * share, math.ceil(least)), most))


def install(setting: Setting, what: str) -> str:
    """`what` installed with the packager of the evidence; in a notebook as a cell magic."""
    return f"{_pip(setting)} install {what}"


def remove(setting: Setting, what: str) -> str:
    """`what` uninstalled with the packager of the evidence."""
    return f"{_pip(setting)} uninstall {'' if setting.packager == 'uv' else '-y '}{what}"


def _pip(setting: Setting) -> str:
    if setting.packager == "uv":
        return "uv pip"
    return "%pip" if setting.place in ("notebook", "colab") else "pip"


def as_root(setting: Setting, debian: str, redhat: str, arch: str = "") -> str:
    """The system command of the evidence's distribution; Debian's and Ubuntu's when it is unknown."""
    name = setting.distribution.lower()
    if any(word in name for word in ("red hat", "rhel", "centos", "rocky", "alma", "fedora", "amazon linux", "oracle")):
        return f"sudo {redhat}"
    if arch and any(word in name for word in ("arch", "manjaro", "endeavour")):
        return f"sudo {arch}"
    return f"sudo {debian}"


def torch_build(setting: Setting) -> tuple[Remedy, ...]:
    """Replace torch and its companions by a build that the GPU and the driver of the evidence both run."""
    wheel = wheel_for(setting.capability, setting.driver_cuda)
    if wheel is None:
        return (do("Update the driver first: no PyTorch wheel for this driver has code for this GPU."),)
    known_gpu = setting.capability is not None
    return (
        do(
            f"Replace torch with PyTorch's own build for CUDA {wheel.cuda[0]}.{wheel.cuda[1]}"
            + ("." if known_gpu else "; a GPU of the RTX 50 series or newer needs 12.9 or later."),
            f"{remove(setting, 'torch torchvision torchaudio')}\n{install(setting, wheel.arguments)}",
        ),
        do("Check the new build.", 'python -c "import torch; print(torch.__version__, torch.cuda.is_available())"'),
    )


def driver_update(setting: Setting) -> tuple[Remedy, ...]:
    """A newer driver, in the way of the place; or a torch that the present one runs."""
    wheel = wheel_for(setting.capability, setting.driver_cuda) if setting.driver_cuda is not None else None
    older: tuple[Remedy, ...] = ()
    if wheel is not None:
        say = f"Keep the driver and install PyTorch's build for CUDA {wheel.cuda[0]}.{wheel.cuda[1]}, which it runs."
        older = (do(say, install(setting, wheel.arguments)),)
    update = as_root(setting, "apt install nvidia-driver-580", "dnf install nvidia-driver", "pacman -S nvidia")
    match setting.place:
        case "windows" | "wsl":
            return (do("Install a current NVIDIA driver in Windows (not inside WSL), then restart."), *older)
        case "docker" | "kubernetes":
            return (do("Update the driver on the host; a container cannot bring its own.", update), *older)
        case "slurm" | "colab" | "notebook":
            return (*older, do("Ask the administrator to update the driver itself."))
        case _:
            return (do("Update the driver and restart.", update), *older)
