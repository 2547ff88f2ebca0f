import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoc.doctor.device import Choice
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, GpuProcess
from gpudoc.tune import options
from gpudoc.tune.options import Options, look_around
from tests.machines.built import gpu, machine


def typed(**changes):
    plain = {"source": "quickstart", "device": "cpu", "goal": "largest", "only": "batch, speed", "budget": "2m"}
    return Options.of(**{**plain, "memory_limit": "1GiB", **changes})


def test_what_was_typed_is_read():
    options = typed().also(max_batch=9, out=Path("p.yaml"), fresh=True)
    options.check()
    assert options.parts == {"batch", "speed"}
    assert (options.budget_s, options.memory_limit_bytes, options.max_batch) == (120.0, 1 << 30, 9)
    assert typed(memory_limit="").memory_limit_bytes is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"budget": "soon"}, "--budget: not a duration"),
        ({"budget": "2s"}, "too short"),
        ({"memory_limit": "banana"}, "--memory-limit: not a size"),
        ({"goal": "luck"}, "no such goal: 'luck'"),
        ({"only": "batch,luck"}, "no such part: luck"),
        ({"only": ""}, "--only"),
    ],
)
def test_what_makes_no_sense_is_said_with_the_option(changes, says):
    with pytest.raises(GpudocError) as raised:
        typed(**changes).check()
    assert says in raised.value.message
    assert raised.value.exit_code == 2


def test_a_batch_below_one_is_refused():
    with pytest.raises(GpudocError, match="at least 1"):
        typed().also(max_batch=0, out=None, fresh=False).check()


def test_the_trials_may_take_what_is_free_where_that_is_known(monkeypatch):
    monkeypatch.setattr(options, "memory_free_bytes", lambda: 300)
    assert options.free_host_bytes() == 300
    monkeypatch.setattr(options, "memory_free_bytes", lambda: Absent("no /proc"))
    with pytest.raises(GpudocError, match="cannot be read"):
        options.free_host_bytes()


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_system_that_cannot_fork_is_told_where_tune_works(monkeypatch, on_gpu):
    options.check_system(on_gpu)
    monkeypatch.delattr(os, "fork")
    with pytest.raises(GpudocError, match="by fork") as caught:
        options.check_system(on_gpu)
    assert "WSL" in caught.value.hint


def test_a_cpu_without_a_limit_of_memory_is_not_tuned(monkeypatch):
    monkeypatch.setattr(options.Path, "exists", lambda self: str(self) != "/proc/self/status")
    options.check_system(on_gpu=True)
    with pytest.raises(GpudocError, match="only Linux"):
        options.check_system(on_gpu=False)


def test_what_a_search_costs_at_most():
    options = typed(budget="5m")
    assert options.cost(1, on_gpu=False) == "takes at most 5 min 00 s"
    assert options.cost(4, on_gpu=True) == "takes at most 5 min 00 s, 0.33 GPU-hours"


def test_beside_others_nothing_is_tried_unless_told_to():
    other = GpuProcess(pid=2**22 + 7, alive=True, name="python", sm_percent=90)
    busy = machine(gpu(0), gpu(1, processes=(other,)))
    choice, heard = Choice(device="cuda", index=0, why="asked for"), Heard()
    look_around(typed(), choice, busy, heard, 1)
    with pytest.raises(GpudocError, match="others compute on cuda:1: python") as caught:
        look_around(typed(), choice, busy, heard, 2)
    assert caught.value.exit_code == 1
    assert heard.said == []
    look_around(replace(typed(), shared=True), choice, busy, heard, 2)
    assert "beside them only" in heard.said[0]


class Heard:
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_where_the_scaling_is_measured_as_well_half_of_the_budget_is_for_tuning():
    asked = Options(source="x", budget_s=60.0)
    assert (asked.tuning_s, asked.scaling_s) == (60.0, 0.0)
    both = replace(asked, parts=frozenset({"speed", "scaling"}))
    assert (both.tuning_s, both.scaling_s) == (30.0, 30.0)
    alone = replace(asked, parts=frozenset({"scaling"}))
    assert (alone.tuning_s, alone.scaling_s) == (60.0, 60.0)
