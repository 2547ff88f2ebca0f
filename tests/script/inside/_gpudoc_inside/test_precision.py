"""The format of autocast is noted when it is entered; entering it does what it did."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gpudoc.script.inside._gpudoc_inside import steps


@pytest.fixture
def kind(monkeypatch):
    class Autocast(torch.autocast):
        pass

    monkeypatch.setattr(steps, "_entered", None)
    report = SimpleNamespace(undo=[])
    steps.watch_autocast(report)(SimpleNamespace(autocast=Autocast))
    yield Autocast
    for undo in report.undo:
        undo()
    assert Autocast.__enter__ is torch.autocast.__enter__


def test_the_last_format_that_was_entered_is_told(kind):
    assert steps.autocast() is None
    with kind("cpu", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cpu")
    assert steps.autocast() == "bfloat16"


def test_an_autocast_that_is_switched_off_is_no_format(kind):
    with kind("cpu", enabled=False):
        pass
    assert steps.autocast() is None


def test_tf32_is_told_as_torch_says(monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert steps.tf32() is True
    monkeypatch.delattr(torch, "get_float32_matmul_precision")
    assert steps.tf32() is None
