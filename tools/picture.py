"""The screens and the picture of README.md, each from a real run of a command on files of tools/scenes.

    python tools/picture.py                  # run the scenes that take seconds, and print them
    python tools/picture.py --write          # also write them into README.md, and docs/pictures/paste.svg
    python tools/picture.py --write job tune # scenes that take longer and depend on the machine

A screen stands between `<!-- screen: paste -->` and `<!-- end -->`; the text after it is written by hand.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
SCENES = ROOT / "tools" / "scenes"
README = ROOT / "README.md"
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 80
# seconds until the job of a scene trains
_SETTLED_S = 12.0
# without fonts to fetch for a page that shows the picture: the reader's own font will do
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


@dataclass(frozen=True)
class Scene:
    """A command as it is shown; 'PID' is that of the job, which runs meanwhile; `drawn` if README has a picture."""

    command: str
    job: str = ""
    drawn: bool = False


ALL = {
    "paste": Scene("gpudoc doctor error.txt", drawn=True),
    "job": Scene("gpudoc doctor --pid PID", job="train.py"),
    "tune": Scene("gpudoc tune --model cfg.yaml --only loader --budget 5m"),
}


def main() -> int:
    """Run the named scenes, or else those that are quick and the same everywhere; show or write them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("scenes", nargs="*", choices=[*ALL, []], default=[])
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    for name in chosen.scenes or [name for name, scene in ALL.items() if scene.drawn]:
        screen = run(name)
        print(f"$ {ALL[name].command}\n{screen.plain}")
        if chosen.write:
            README.write_text(with_screen(README.read_text("utf-8"), name, screen.plain), "utf-8")
            if ALL[name].drawn:
                PICTURES.mkdir(exist_ok=True)
                (PICTURES / f"{name}.svg").write_text(drawing(name, screen), "utf-8")
    return 0


def run(name: str) -> Text:
    """What the scene's command prints on a terminal of 80 columns."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        shutil.copytree(SCENES / name, folder)
        # makes a search keep its profile here instead of among the user's
        (folder / ".gpudoc" / "profiles").mkdir(parents=True)
        scene = ALL[name]
        job = subprocess.Popen([sys.executable, scene.job], cwd=folder) if scene.job else None
        try:
            if job is not None:
                time.sleep(_SETTLED_S)
            words = scene.command.replace("PID", str(job.pid) if job else "").split()
            return on_terminal([sys.executable, "-m", *words], folder)
        finally:
            if job is not None:
                job.kill()
                job.wait()


def on_terminal(command: list[str], folder: Path) -> Text:
    """The output of `command` on a stdout that is a terminal; its progress on stderr is left out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment = {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    with subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                block = os.read(ours, 1 << 16)
            except OSError:
                # this is how Linux says that nobody writes to the terminal any more
                break
            if not block:
                break
            seen += block
    os.close(ours)
    assert process.returncode in (0, 1), f"{command} ended with {process.returncode}"
    return Text.from_ansi(seen.decode().replace("\r\n", "\n").rstrip())


def with_screen(text: str, name: str, screen: str) -> str:
    """The README's text with the scene's new screen."""
    block = re.compile(rf"(<!-- screen: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    lines = "\n".join(line.rstrip() for line in screen.splitlines())
    assert block.search(text), f"README.md has no place for {name}"
    return block.sub(lambda match: f"{match[1]}```text\n$ {ALL[name].command}\n{lines}\n```\n{match[2]}", text)


def drawing(name: str, screen: Text) -> str:
    """The scene as an SVG picture of a terminal: first the pasted text if there is one, then the screen."""
    console = Console(record=True, width=COLUMNS + 2, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for path in sorted((SCENES / name).glob("*.txt")):
        console.print(f"[bold green]$[/] cat {path.name}")
        console.print(Text(path.read_text("utf-8").rstrip(), style="dim", overflow="fold"))
        console.print()
    console.print(f"[bold green]$[/] {ALL[name].command}")
    console.print(screen)
    return console.export_svg(title="gpudoc", code_format=_FORMAT, unique_id="gpudoc")


if __name__ == "__main__":
    sys.exit(main())
