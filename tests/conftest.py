"""Every test has profile folders and a home of its own, so that what a user keeps is neither read nor written."""

import os
import signal

import pytest

from tests.standin.gpus import standin  # noqa: F401

# two test processes on two cores: threads that wait by spinning (OpenMP's default) make each other's steps five times
# slower; read once, when torch is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# a shell that starts the suite in the background leaves Ctrl+C ignored, and every child would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("GPUDOC_PROFILE_DIR", raising=False)
    return home
