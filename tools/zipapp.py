"""gpudoc.pyz: doctor as one file for machines where nothing can be installed; any Python from 3.10 on runs it.

    python tools/zipapp.py [--out gpudoc.pyz]

Nothing in it is compiled, so that one file is enough for every system and Python, and nothing has to be unpacked. The
costs: Python's own engine searches instead of RE2, and `--pid` shows lines of code only if py-spy is on PATH.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the installed packages that doctor imports. From 0.29 on, Typer needs pydantic, which is compiled
PACKAGES = (
    "annotated-doc",
    "markdown-it-py",
    "mdurl",
    "nvidia-ml-py",
    "pygments",
    "pyyaml",
    "rich",
    "shellingham",
    "typer<0.29",
    "typing-extensions",
)
MOST_BYTES = 15_000_000
_COMPILED = {".so", ".pyd", ".dll", ".dylib", ".pyc"}
_START = b"#!/usr/bin/env python3\n"
# an older Python must be able to parse everything before the sentence
_MAIN = """\
import sys

if sys.version_info < (3, 10):
    sys.exit("gpudoc: gpudoc.pyz needs Python 3.10 or newer, and this is Python %d.%d" % sys.version_info[:2])

from gpudoc.cli.app import main

main()
"""


def main() -> int:
    """Build the file and say how large it is; returns 1 if it is larger than it may be."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=ROOT / "gpudoc.pyz")
    out: Path = options.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        write_archive(out, (Path(folder),))
    size = out.stat().st_size
    print(f"{out}: {size / 1e6:.1f} MB")
    return int(size > MOST_BYTES)


def install(folder: Path) -> None:
    """Put the packages that doctor imports into `folder`, in the versions of constraints.txt except for Typer."""
    pins = [
        line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("typer=")
    ]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins), "utf-8")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile")
    pip = [sys.executable, "-m", "pip", "install", *quiet, "-c", str(constraints), "--target", str(folder)]
    subprocess.run([*pip, *PACKAGES], check=True)
    constraints.unlink()


def write_archive(out: Path, folders: tuple[Path, ...]) -> None:
    """Write gpudoc and the packages in `folders`, without compiled files, as one program."""
    with out.open("wb") as stream:
        stream.write(_START)
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            archive.writestr("__main__.py", _MAIN)
            archive.write(ROOT / "LICENSE", "LICENSE")
            for base, top in ((ROOT, "gpudoc"), *((folder, ".") for folder in folders)):
                for path in sorted((base / top).rglob("*")):
                    if path.is_file() and path.suffix not in _COMPILED and path.parent.name != "bin":
                        archive.write(path, path.relative_to(base))
    out.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
