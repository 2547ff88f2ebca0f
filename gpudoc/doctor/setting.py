"""The system that the evidence describes, which a remedy must fit; its words in a step, and the state of its GPUs.

In a remedy's steps, `{called}` in a text is filled in, and `generation: old` is a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from gpudoc.doctor.causes.sign import as_words
from gpudoc.doctor.model import Card, Evidence, Observation, Packager, Place, Setting
from gpudoc.facts.model import Absent, Fact, Gpu, GpuProcess, Machine, known
from gpudoc.facts.readers.model import CleanText, Reading
from gpudoc.knowledge.compatibility import Wheel, capability_of, wheel_for
from gpudoc.knowledge.drivers import cuda_of_driver
from gpudoc.knowledge.tables import read_table
from gpudoc.patterns import Pattern
from gpudoc.shell import is_pci_address, is_uuid, is_version
from gpudoc.units import format_bytes

# the driver's own line names the kind of its module
_MODULE = Pattern(r"NVIDIA UNIX (Open )?(?:x86_64 |aarch64 )?Kernel Module")
# printed only by ROCm's runtime
_OF_ROCM = Pattern(r"\bHIP error|\bhipError\w|\bhipblas|\brocblas|HSA_OVERRIDE_GFX_VERSION|\bgfx\d{3,4}\b")


def describe(evidence: Evidence) -> Setting:
    """The system that the evidence describes; an unknown part stays at its plain default (pip on a host)."""
    machine = evidence.machine
    text = evidence.reading.text if evidence.reading is not None else CleanText(())
    gpus = known(machine.gpus) or ()
    first = gpus[0] if gpus else None
    return Setting(
        packager=_packager(machine, text),
        accelerator=_accelerator(machine, text),
        place=_place(machine, text),
        distribution=known(machine.host.distribution) or "",
        driver_cuda=_driver_cuda(machine),
        torch_version=known(machine.torch.version) or "",
        capability=(known(first.capability) or capability_of(known(first.name) or "")) if first else None,
        num_gpus=len(gpus) or None,
        open_module=_open_module(machine, text),
        holders={} if evidence.source == "file" else _holders(gpus),
    )


def _holders(gpus: tuple[Gpu, ...]) -> dict[int, tuple[GpuProcess, ...]]:
    """The processes of each GPU; a GPU whose processes are unknown is left out, since it may have some."""
    return {gpu.index: gpu.processes for gpu in gpus if not isinstance(gpu.processes, Absent)}


def _open_module(machine: Machine, text: CleanText) -> bool | None:
    known_kind = known(machine.driver.open_kernel_module)
    if known_kind is not None:
        return known_kind
    named = text.find(_MODULE)
    return None if named is None else bool(named[1])


def _driver_cuda(machine: Machine) -> tuple[int, int] | None:
    version = known(machine.driver.module_version) or known(machine.driver.library_version)
    windows = machine.has_windows_driver
    carried = cuda_of_driver(version, windows=windows) if version is not None and version[:1].isdecimal() else None
    # nvidia-smi inside a container may show the CUDA of a compat library instead of the driver's own
    return carried or known(machine.driver.cuda_version)


def _accelerator(machine: Machine, text: CleanText) -> str:
    built = known(machine.torch.accelerator)
    is_rocm = built == "rocm" or (built is None and not known(machine.gpus) and text.find(_OF_ROCM) is not None)
    return "rocm" if is_rocm else ""


def _packager(machine: Machine, text: CleanText) -> Packager:
    manager = known(machine.python.manager)
    if manager in ("uv", "conda", "poetry"):
        return manager  # type: ignore[return-value]  # the three literals just compared
    return cast(Packager, _named("packagers", text) or "pip")


def _place(machine: Machine, text: CleanText) -> Place:
    if known(machine.host.wsl):
        return "wsl"
    if known(machine.host.jetson):
        return "jetson"
    kind, scheduler = known(machine.container.kind), known(machine.container.scheduler)
    if kind and kind != "none":
        return "kubernetes" if scheduler == "kubernetes" else "docker"
    if scheduler == "slurm":
        return "slurm"
    system = {"windows": "windows", "darwin": "macos"}.get((known(machine.host.system) or "").lower(), "host")
    return cast(Place, _named("places", text) or system)


def _named(section: str, text: CleanText) -> str | None:
    """The name of the first row in a section of places.yaml whose words are in the text."""
    rows = read_table("places.yaml", section) if text.lines else ()
    return next((str(row["name"]) for row in rows if text.find(as_words(tuple(cast(list[str], row["any"]))))), None)


_TURING, _AMPERE, _BLACKWELL = (7, 5), (8, 0), (10, 0)
_RED_HAT = ("red hat", "rhel", "centos", "rocky", "alma", "fedora", "amazon linux", "oracle")
_ARCH = ("arch", "manjaro", "endeavour")
# the owner of the driver, if it is not the machine itself
_DRIVER_AT = {
    **dict.fromkeys(("windows", "wsl"), "windows"),
    **dict.fromkeys(("docker", "kubernetes"), "host"),
    **dict.fromkeys(("slurm", "colab", "notebook"), "administrator"),
}


def driver_at(setting: Setting) -> str:
    """Where the driver is: 'windows', 'host' (of the container), 'administrator', or 'here'."""
    return _DRIVER_AT.get(setting.place, "here")


def _pip(setting: Setting) -> str:
    if setting.packager == "uv":
        return "uv pip"
    return "%pip" if setting.place in ("notebook", "colab") else "pip"


def _torch(setting: Setting) -> str:
    version = setting.torch_version.split("+")[0]
    return f"torch=={version}" if is_version(version) else "torch"


def _distribution(setting: Setting) -> str:
    """The family of the distribution; if it is unknown, that of Debian and Ubuntu."""
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
    """CUDA_VISIBLE_DEVICES with every GPU except the ill ones; '' if their numbers or the count are unknown."""
    ill = [card.index for card in (*setting.cards, *setting.ill)]
    if setting.num_gpus is None or not setting.cards or any(isinstance(index, Absent) for index in ill):
        return ""
    left = [str(index) for index in range(setting.num_gpus) if index not in ill]
    # without the bus order, CUDA numbers unequal GPUs by speed, unlike nvidia-smi
    return f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(left)}" if left else ""


def _other_gpus(setting: Setting) -> str:
    if _mask(setting):
        return "some"
    return "none" if setting.num_gpus == 1 else ""


def _indices(setting: Setting) -> str:
    """Like `selector`, for a program that knows only numbers; '' if a card has none."""
    numbered = all(isinstance(card.index, int) for card in setting.cards)
    return selector(setting.cards) if numbered else ""


def selector(cards: Sequence[Card]) -> str:
    """' -i 1,3' for nvidia-smi, by index or else by PCI address or UUID; '' if a card cannot be named."""
    names = [_name(card) for card in cards]
    return f" -i {','.join(names)}" if names and all(names) else ""


def _name(card: Card) -> str:
    """The card's name in a command; '' for an address or UUID in another form, which may come from anybody's text."""
    if not isinstance(card.index, Absent):
        return str(int(card.index))
    return address_of(card) or (card.uuid if isinstance(card.uuid, str) and is_uuid(card.uuid) else "")


def address_of(card: Card) -> str:
    """The card's PCI address; '' if it has none or the value is not an address."""
    return card.pci_address if isinstance(card.pci_address, str) and is_pci_address(card.pci_address) else ""


def called(cards: Sequence[Card]) -> str:
    """'GPU 3', 'GPUs 1 and 3', 'the GPU at 0000:3b:00.0', or 'the GPU' if none is known."""
    if not selector(cards):
        return "the GPU"
    if any(isinstance(card.index, Absent) for card in cards):
        places = " and ".join(_name(card) for card in cards)
        return f"the GPU{'s' if len(cards) > 1 else ''} at {places}"
    numbers = [str(card.index) for card in cards]
    return f"GPU {numbers[0]}" if len(numbers) == 1 else f"GPUs {', '.join(numbers[:-1])} and {numbers[-1]}"


# each gives '' if the setting does not know it
WORDS: Mapping[str, Callable[[Setting], str]] = {
    "accelerator": lambda setting: setting.accelerator,
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


_MOST_GPUS = 4


def condition(reading: Reading) -> tuple[Observation, ...]:
    """One observation for each thing whose state the text gives; empty if it gives none."""
    machine = reading.machine
    seen = list(_gpus(() if isinstance(machine.gpus, Absent) else machine.gpus))
    if machine.torch.is_available is True:
        version = machine.torch.version
        seen.append(Observation("torch", f"torch {'' if isinstance(version, Absent) else f'{version} '}sees a GPU", ""))
    return tuple(seen)


def _gpus(gpus: Sequence[Gpu]) -> Iterator[Observation]:
    told = [gpu for gpu in gpus if not isinstance(gpu.utilization_percent, Absent) or _memory([gpu])]
    if len(told) <= _MOST_GPUS:
        for gpu in told:
            yield Observation("gpu", f"GPU {gpu.index} {_state([gpu])}", "")
    else:
        yield Observation("gpu", f"{len(told)} GPUs {_state(told)}", "")


def _state(gpus: Sequence[Gpu]) -> str:
    busy = _range([gpu.utilization_percent for gpu in gpus])
    return ", ".join(part for part in (f"{busy} % busy" if busy else "", _memory(gpus)) if part)


def _memory(gpus: Sequence[Gpu]) -> str:
    totals = {gpu.memory_total_bytes for gpu in gpus}
    used, total = _range([gpu.memory_used_bytes for gpu in gpus], format_bytes), totals.pop()
    if totals or isinstance(total, Absent) or not total or not used:
        return ""
    return f"{used} of {format_bytes(total)} used"


def _range(values: Sequence[Fact[int]], say: Callable[[int], str] = str) -> str:
    figures = [value for value in values if not isinstance(value, Absent)]
    if not figures:
        return ""
    least, most = say(min(figures)), say(max(figures))
    return least if least == most else f"{least} to {most}"
