"""What gpudoc does, and what it says, on systems that have less than Linux; docs/platforms.md tells the same."""

import os

import pytest

from gpudoc import facts
from gpudoc.doctor.device import choose
from gpudoc.errors import GpudocError
from gpudoc.facts.live import job, target
from gpudoc.facts.model import Machine
from gpudoc.tune import conditions


def test_a_job_is_not_watched_without_the_proc_of_linux(tmp_path, monkeypatch):
    with pytest.raises(GpudocError, match="needs the /proc of Linux"):
        target.check_system(str(tmp_path))
    started = []
    monkeypatch.setattr(job, "check_system", lambda: target.check_system(str(tmp_path)))
    monkeypatch.setattr(job, "_Job", lambda *given: started.append(given))
    with pytest.raises(GpudocError, match="needs the /proc of Linux"):
        facts.launch(["true"], seconds=1, listener=None)
    assert not started


def test_tuning_needs_fork_and_on_a_cpu_the_proc_of_linux(monkeypatch):
    monkeypatch.setattr(conditions, "Path", lambda name: _Nowhere())
    with pytest.raises(GpudocError, match="only Linux has"):
        conditions.check_system(on_gpu=False)
    conditions.check_system(on_gpu=True)
    monkeypatch.delattr(os, "fork")
    with pytest.raises(GpudocError, match="by fork") as told:
        conditions.check_system(on_gpu=True)
    assert "WSL 2" in told.value.hint


class _Nowhere:
    def exists(self):
        return False


@pytest.mark.parametrize("device", ["mps", "xpu", "tpu", "cpu:1"])
def test_a_device_that_gpudoc_does_not_drive_is_refused_with_those_that_it_does(device):
    with pytest.raises(GpudocError, match="no such device") as told:
        choose(device, Machine())
    assert told.value.hint == "--device auto, cpu, cuda or cuda:0"
