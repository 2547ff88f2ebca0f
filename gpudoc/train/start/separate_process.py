"""A training in a separate process, for a program that is not the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import IO

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.arguments import own_python
from gpudoc.process.ending import how_it_ended
from gpudoc.progress import SILENT, Progress

# saves its state and ends if the program that started it is gone, for example after a restart of a notebook's kernel
_PROGRAM = """
import signal
from gpudoc.process.lifetime import die_with_parent
die_with_parent(int(sys.argv.pop(1)), signal.SIGTERM)
from gpudoc.cli.app import main
main()
"""


def train_apart(
    model: str, options: Mapping[str, object], progress: Progress = SILENT
) -> tuple[dict[str, object], int]:
    """Run `gpudoc train` with these options; returns its summary and exit code. Passes its lines on while it runs.

    GpudocError with its message if it could not train. Ctrl+C is passed on: it saves its state and ends.
    """
    process = subprocess.Popen(
        [*own_python(_PROGRAM), str(os.getpid()), "train", "--json", "--plain", *arguments(model, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a terminal's Ctrl+C reaches only this process, which passes it on once
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    heard: list[str] = []
    reader = threading.Thread(target=_drain, args=(process.stdout, heard), daemon=True)
    reader.start()
    last = ""
    while True:
        try:
            for line in process.stderr:
                last = line.rstrip("\n") or last
                progress.say(line.rstrip("\n"))
            code = process.wait()
            break
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
    reader.join()
    return _answer("".join(heard), code, last), code


def arguments(model: str, options: Mapping[str, object]) -> list[str]:
    """The command line of the options: a flag for True, nothing for False and None, `--set` for each setting."""
    words = ["--model", model]
    for name, value in options.items():
        if name == "set" and isinstance(value, Mapping):
            for key, one in value.items():
                words += ["--set", f"{key}={str(one).lower() if isinstance(one, bool) else one}"]
        elif value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def _drain(stream: IO[str], heard: list[str]) -> None:
    heard.append(stream.read())


def _answer(text: str, code: int, last: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError:
        said = f": {last}" if last else ""
        raise GpudocError(f"training {how_it_ended(code)}{said}", exit_code=ExitCode.BAD_ANSWER) from None
    if document.get("schema") == "gpudoc.error.v1":
        raise GpudocError(str(document["message"]), hint=str(document["hint"]), exit_code=ExitCode(code))
    return dict(document)
