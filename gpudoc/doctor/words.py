"""What a setting says in the steps of a remedy: `{called}` in a text is filled in, `generation: old` is a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudoc.doctor.cards import address_of, called, selector
from gpudoc.doctor.model import Setting
from gpudoc.facts.model import Absent, Gpu
from gpudoc.knowledge.compatibility import Wheel, wheel_for
from gpudoc.shell import is_version

_TURING, _AMPERE, _BLACKWELL = (7, 5), (8, 0), (10, 0)
_RED_HAT = ("red hat", "rhel", "centos", "rocky", "alma", "fedora", "amazon linux", "oracle")
_ARCH = ("arch", "manjaro", "endeavour")
# whose the driver is, where it is not the machine's own
_DRIVER_AT = {
    **dict.fromkeys(("windows", "wsl"), "windows"),
    **dict.fromkeys(("docker", "kubernetes"), "host"),
    **dict.fromkeys(("slurm", "colab", "notebook"), "administrator"),
}


def driver_at(setting: Setting) -> str:
    """Where the driver is: in 'windows', on the container's 'host', at an 'administrator', or 'here'."""
    return _DRIVER_AT.get(setting.place, "here")


def _pip(setting: Setting) -> str:
    if setting.packager == "uv":
        return "uv pip"
    return "%pip" if setting.place in ("notebook", "colab") else "pip"


def _torch(setting: Setting) -> str:
    version = setting.torch_version.split("+")[0]
    return f"torch=={version}" if is_version(version) else "torch"


def _distribution(setting: Setting) -> str:
    """Debian and Ubuntu also where it is unknown."""
    name = setting.distribution.lower()
    if any(word in name for word in _RED_HAT):
        return "redhat"
    return "arch" if any(word in name for word in _ARCH) else "debian"


def _generation(setting: Setting) -> str:
    if setting.capability is None:
        return ""
    if setting.capability >= _BLACKWELL:
        return "blackwell"
    return "turing" if setting.capability >= _TURING else "old"


def _gsp(setting: Setting) -> str:
    if setting.open_module or _generation(setting) == "blackwell":
        return "needed"
    return "" if setting.open_module is None or setting.capability is None else "optional"


def _wheel(setting: Setting) -> Wheel | None:
    return wheel_for(setting.capability, setting.driver_cuda)


def _version(version: tuple[int, int] | None) -> str:
    return f"{version[0]}.{version[1]}" if version else ""


def _is_joined(gpu: object) -> bool:
    if not isinstance(gpu, Gpu) or isinstance(gpu.capability, Absent) or isinstance(gpu.nvlink_active, Absent):
        return False
    return gpu.capability < _AMPERE and gpu.nvlink_active > 0


def _mask(setting: Setting) -> str:
    """CUDA_VISIBLE_DEVICES with every GPU but the ill ones; '' when their numbers or the count are not known."""
    ill = [card.index for card in (*setting.cards, *setting.ill)]
    if setting.num_gpus is None or not setting.cards or any(isinstance(index, Absent) for index in ill):
        return ""
    left = [str(index) for index in range(setting.num_gpus) if index not in ill]
    # without the order of the bus CUDA numbers unequal GPUs by speed, and not as nvidia-smi does
    return f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(left)}" if left else ""


def _other_gpus(setting: Setting) -> str:
    if _mask(setting):
        return "some"
    return "none" if setting.num_gpus == 1 else ""


def _indices(setting: Setting) -> str:
    """As the cards for a program that knows only numbers."""
    numbered = all(isinstance(card.index, int) for card in setting.cards)
    return selector(setting.cards) if numbered else ""


# each is '' where the setting does not tell
WORDS: Mapping[str, Callable[[Setting], str]] = {
    "address": lambda setting: address_of(setting.cards[0]) if setting.cards else "",
    "called": lambda setting: called(setting.cards),
    "card": lambda setting: selector(setting.cards),
    "cards": lambda setting: selector(setting.cards),
    "distribution": _distribution,
    "driver_at": driver_at,
    "driver_cuda": lambda setting: _version(setting.driver_cuda),
    "generation": _generation,
    "gsp": _gsp,
    "in_windows": lambda setting: "in Windows" if driver_at(setting) == "windows" else "",
    "indices": _indices,
    "install": lambda setting: f"{_pip(setting)} install",
    "links": lambda setting: "joined" if any(_is_joined(card.facts) for card in setting.cards) else "",
    "machine": lambda setting: "the host" if driver_at(setting) == "host" else "the machine",
    "mask": _mask,
    "other_gpus": _other_gpus,
    "packager": lambda setting: setting.packager,
    "place": lambda setting: setting.place,
    "remove": lambda setting: f"{_pip(setting)} uninstall{'' if setting.packager == 'uv' else ' -y'}",
    "torch": _torch,
    "wheel": lambda setting: wheel.arguments if (wheel := _wheel(setting)) else "",
    "wheel_cuda": lambda setting: _version(wheel.cuda) if (wheel := _wheel(setting)) else "",
    "where": lambda setting: {"windows": "in Windows", "host": "on the host"}.get(driver_at(setting), ""),
}
