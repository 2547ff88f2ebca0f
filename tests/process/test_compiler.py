"""torch.compile is only tried where its compilers are."""

from __future__ import annotations

import importlib.util
import sysconfig

import pytest

from gpudoc.process.compiler import can_compile


@pytest.fixture
def gpu_machine(tmp_path, monkeypatch):
    """A PATH with gcc alone, Python's header, and Triton."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gcc").write_text("#!/bin/sh\n")
    (tmp_path / "bin/gcc").chmod(0o755)
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    return tmp_path


def test_a_gpu_with_all_that_triton_needs_compiles(gpu_machine):
    assert can_compile("cuda", (7, 0))
    # ROCm tells no capability
    assert can_compile("cuda", None)
    assert not can_compile("cpu", None)


def test_a_gpu_older_than_volta_does_not(gpu_machine):
    assert not can_compile("cuda", (6, 1))


@pytest.mark.parametrize("missing", ["bin/gcc", "Python.h"])
def test_a_slim_container_does_not(gpu_machine, missing):
    (gpu_machine / missing).unlink()
    assert not can_compile("cuda", (9, 0))


def test_without_triton_it_does_not(gpu_machine, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not can_compile("cuda", (9, 0))
