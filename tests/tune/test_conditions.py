import os

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, GpuProcess
from gpudoc.tune import conditions
from gpudoc.tune.conditions import require_gpus
from tests.machines.built import gpu, machine


def test_the_trials_may_take_what_is_free_where_that_is_known(monkeypatch):
    monkeypatch.setattr(conditions, "memory_free_bytes", lambda: 300)
    assert conditions.free_host_bytes() == 300
    monkeypatch.setattr(conditions, "memory_free_bytes", lambda: Absent("no /proc"))
    with pytest.raises(GpudocError, match="cannot be read"):
        conditions.free_host_bytes()


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_system_that_cannot_fork_is_told_where_tune_works(monkeypatch, on_gpu):
    conditions.check_system(on_gpu)
    monkeypatch.delattr(os, "fork")
    with pytest.raises(GpudocError, match="by fork") as caught:
        conditions.check_system(on_gpu)
    assert "WSL" in caught.value.hint


def test_a_cpu_without_a_limit_of_memory_is_not_tuned(monkeypatch):
    monkeypatch.setattr(conditions.Path, "exists", lambda self: str(self) != "/proc/self/status")
    conditions.check_system(on_gpu=True)
    with pytest.raises(GpudocError, match="only Linux"):
        conditions.check_system(on_gpu=False)


def test_beside_others_nothing_is_tried_unless_told_to():
    other = GpuProcess(pid=2**22 + 7, alive=True, name="python", sm_percent=90)
    busy = machine(gpu(0), gpu(1, processes=(other,)))
    heard = Heard()
    require_gpus([0], busy, heard, shared=False)
    with pytest.raises(GpudocError, match="other processes compute on cuda:1: python") as caught:
        require_gpus([0, 1], busy, heard, shared=False)
    assert caught.value.exit_code == 1
    assert heard.said == []
    require_gpus([0, 1], busy, heard, shared=True)
    assert "valid only while those processes run" in heard.said[0]


class Heard:
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)
