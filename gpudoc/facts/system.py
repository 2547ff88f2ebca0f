"""The computer on a system without /proc: the facts that Python and psutil know about Windows and macOS."""

from __future__ import annotations

import os
import platform
import sys

from gpudoc.facts.model import Absent, Fact, Host

NAME = {"win32": "Windows", "darwin": "macOS"}.get(sys.platform, platform.system())
_SUBSYSTEM = r"Software\Microsoft\Windows\CurrentVersion\Lxss"


def collect() -> Host:
    """System, processor, memory, and the Linux systems installed under Windows; all other facts stay unread."""
    total, available, swap = _memory()
    return Host(
        system=platform.system(),
        kernel=platform.release(),
        distribution=f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else platform.platform(terse=True),
        architecture=platform.machine(),
        wsl=False,
        wsl_distributions=_distributions(),
        jetson=False,
        cpu_model=platform.processor() or Absent("the system does not say"),
        cpu_count=os.cpu_count() or Absent("the system does not say"),
        memory_total_bytes=total,
        memory_available_bytes=available,
        swap_total_bytes=swap,
    )


def _memory() -> tuple[Fact[int], Fact[int], Fact[int]]:
    """(total, available, swap) in bytes."""
    try:
        import psutil
    except ImportError:
        nothing = Absent("psutil is not installed")
        return nothing, nothing, nothing
    memory = psutil.virtual_memory()
    return memory.total, memory.available, psutil.swap_memory().total


def _distributions() -> Fact[tuple[str, ...]]:
    """The Linux systems of WSL that this user has installed (`wsl --list --quiet`), as Windows' registry names them."""
    if sys.platform != "win32":
        return Absent("WSL exists only on Windows")
    else:
        import winreg

        names = []
        try:
            with winreg.OpenKey(winreg.HKEY_CURRENT_USER, _SUBSYSTEM) as installed:
                for number in range(winreg.QueryInfoKey(installed)[0]):
                    with winreg.OpenKey(installed, winreg.EnumKey(installed, number)) as one:
                        names.append(str(winreg.QueryValueEx(one, "DistributionName")[0]))
        except FileNotFoundError:
            # the key exists only after a Linux system was installed
            return tuple(names)
        except OSError as error:
            return Absent(f"the registry cannot be read: {error.strerror}")
        return tuple(names)
