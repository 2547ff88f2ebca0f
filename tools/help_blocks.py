"""Keep the help texts in docs/commands.md equal to the program's.

    python tools/help_blocks.py            # check; exit code 1 when one differs
    python tools/help_blocks.py --write    # rewrite them

A block is the text between `<!-- help: gpudoc tune -->` and `<!-- end -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (ROOT / "docs" / "commands.md",)
BLOCK = re.compile(r"(<!-- help: gpudoc ?([a-z ]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def help_of(command: str) -> str:
    """What `gpudoc COMMAND --help` prints at a width of 110, as a fenced block."""
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", *command.split(), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "110", "TERMINAL_WIDTH": "110", "NO_COLOR": "1"},
        cwd=ROOT,
    )
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def fresh(text: str) -> str:
    """`text` with every help block replaced by what the program prints now."""
    return BLOCK.sub(lambda match: match[1] + help_of(match[2]) + match[4], text)


def main(write: bool) -> int:
    """Check or rewrite every file; returns 1 if a check finds a difference."""
    stale = []
    for path in FILES:
        text = path.read_text("utf-8")
        new = fresh(text)
        if new != text:
            stale.append(path.name)
            if write:
                path.write_text(new, "utf-8")
    if stale and not write:
        sys.stderr.write(f"stale help in {', '.join(stale)}; run: python tools/help_blocks.py --write\n")
    return 1 if stale and not write else 0


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
