"""Namespaces of the kernel, in which a test sees what another container or a small disk would show."""

import shutil
import subprocess

import pytest


def unshared(*options):
    """`unshare` with these options, or the reason why this machine has none."""
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("unshare is not installed")
    done = subprocess.run([program, *options, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"unshare {' '.join(options)}: {done.stderr.strip()}")
    return [program, *options]
