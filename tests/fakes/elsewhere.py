"""A Python that takes itself for one of Windows or macOS, and lacks what Python lacks there.

Gpudoc's own modules see no POSIX-only module, function or constant; the libraries that it uses keep theirs, and so does
the examined Python. What starts with `sys.executable` takes itself for the same.
"""

from __future__ import annotations

import builtins
import platform
import runpy
import selectors
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MODULES = {"win32": {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}, "darwin": set()}
# https://docs.python.org/3/library/os.html and signal.html: "Availability: Unix", "Availability: Linux"
_LACKING = {
    "win32": {
        "os": (
            "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_NOFOLLOW", "WNOHANG", "confstr", "fchmod", "fork", "getloadavg",
            "getpgid", "getsid", "getuid", "geteuid", "killpg", "mkfifo", "pipe2", "posix_fadvise", "pread",
            "sched_getaffinity", "set_blocking", "setpgid", "setsid", "statvfs", "sysconf", "uname", "wait",
        ),
        "signal": ("ITIMER_VIRTUAL", "SIGHUP", "SIGKILL", "SIGVTALRM", "getitimer", "setitimer", "siginterrupt"),
    },
    "darwin": {"os": ("pipe2", "posix_fadvise", "sched_getaffinity"), "signal": ()},
}  # fmt: skip
_MACHINES = {
    "win32": ("Windows", "desk", "11", "10.0.26100", "AMD64"),
    "darwin": ("Darwin", "desk", "24.1.0", "Darwin Kernel Version 24.1.0", "arm64"),
}
_PROGRAM = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.fakes.elsewhere import run
run({system!r}, {linuxes!r}, sys.argv)
"""


def python_of(system: str, folder: Path, linuxes: tuple[str, ...] = ()) -> Path:
    """A program in `folder` that is called like Python; `linuxes` are what WSL has installed."""
    path = folder / f"python-of-{system}"
    path.write_text(_PROGRAM.format(python=sys.executable, root=str(ROOT), system=system, linuxes=linuxes))
    path.chmod(0o755)
    return path


def run(system: str, linuxes: tuple[str, ...], arguments: list[str]) -> None:
    """Become a Python of that system and run what its arguments name: code, a module or a file."""
    _become(system, arguments[0], linuxes)
    first, *rest = [one for one in arguments[1:] if one not in ("-I", "-S")]
    sys.argv = rest if first in ("-c", "-m") else [first, *rest]
    if first == "-c":
        exec(rest[0], {"__name__": "__main__"})
    elif first == "-m":
        _be_patient()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


def _be_patient() -> None:
    """Give each part of the machine minutes: here it starts in a Python that imports much first, on a busy machine."""
    from gpudoc.facts.collection import Deadlines, collect

    collect.__kwdefaults__["deadlines"] = Deadlines(torch_s=200.0, driver_s=200.0, files_s=200.0)


def _become(system: str, python: str, linuxes: tuple[str, ...]) -> None:
    # what chooses its ways when it is imported does so as what it is
    import getpass
    import multiprocessing.popen_fork
    import multiprocessing.queues
    import multiprocessing.synchronize
    import shutil
    import sysconfig
    import tempfile

    import psutil
    import rich.console
    import typer
    import yaml

    del getpass, multiprocessing, shutil, tempfile, psutil, rich, typer, yaml
    sysconfig.get_config_vars()
    sys.platform, sys.executable = system, python
    machine = platform.uname_result(*_MACHINES[system])
    platform.uname = lambda: machine
    without = {name: _without(sys.modules[name], names) for name, names in _LACKING[system].items()}
    missing, real = _MODULES[system], builtins.__import__

    def guarded(name, globals=None, *rest, **named):  # noqa: A002  the name is that of the one replaced
        if str((globals or {}).get("__name__", "")).split(".")[0] == "gpudoc":
            if name in missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in without:
                return without[name]
        return real(name, globals, *rest, **named)

    builtins.__import__ = guarded
    if system == "win32":
        sys.modules["winreg"] = _registry(linuxes)
        subprocess.Popen.__init__ = _without_inheritance(subprocess.Popen.__init__)
        selectors.DefaultSelector = _no_selector


def _without(module: types.ModuleType, names: tuple[str, ...]) -> types.ModuleType:
    reduced = types.ModuleType(module.__name__)
    reduced.__dict__.update({name: value for name, value in vars(module).items() if name not in names})
    return reduced


def _without_inheritance(real):
    def start(self, *arguments, pass_fds=(), **named):
        if pass_fds:
            raise ValueError("pass_fds not supported on Windows.")
        # there are no sessions, and the argument is not looked at
        real(self, *arguments, **{**named, "start_new_session": False})

    return start


def _no_selector():
    raise OSError(10038, "An operation was attempted on something that is not a socket")


def _registry(linuxes: tuple[str, ...]) -> types.ModuleType:
    """What winreg says of the key that WSL fills, which is there once a Linux was installed."""

    class Key(str):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def open_key(above, name):
        if above == "HKCU" and not linuxes:
            raise FileNotFoundError(2, "The system cannot find the file specified")
        return Key(name)

    fake = types.ModuleType("winreg")
    fake.HKEY_CURRENT_USER, fake.OpenKey = "HKCU", open_key
    fake.QueryInfoKey = lambda key: (len(linuxes), 0, 0)
    fake.EnumKey = lambda key, number: linuxes[number]
    fake.QueryValueEx = lambda key, name: (str(key), 1)
    return fake
