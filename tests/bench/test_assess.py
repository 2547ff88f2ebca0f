from dataclasses import replace

import pytest

from gpudoc.bench.assess import MEANINGS, assess
from gpudoc.bench.model import Ceiling
from gpudoc.bench.settle import settle
from gpudoc.facts.model import Host, Machine
from tests.bench.builders import H100, machine, reading, row, situation

SCENE = situation([])


def ids(measured, scene=SCENE):
    return [doubt.id for doubt in assess(measured, scene).doubts]


@pytest.mark.parametrize(("value", "refused"), [(62.0, False), (64.2, False), (64.4, True), (457.0, True)])
def test_what_is_above_102_percent_of_the_ceiling_is_refused(value, refused):
    judged = assess(replace(row(value=value), ceiling=Ceiling(63.015, "PCIe Gen5 x16")), SCENE)
    assert (judged.value is None) == refused
    assert [doubt.id for doubt in judged.doubts] == (["impossible"] if refused else [])
    assert judged.rounds[0][0] == value, "the samples stay in the record"


def test_without_a_ceiling_nothing_is_refused():
    assert assess(row(value=1e9), SCENE).value == 1e9


def test_a_clean_row_has_no_doubts():
    assert ids(row(context={"stolen_share": 0.0, "other_cpus_max": 0.1, "gpu_processes_max": 1.0})) == []


def test_spread_few_samples_and_processes_that_differ():
    assert ids(settle([reading(samples=(1.0, 2.0, 3.0))])[0]) == ["few_samples", "spread"]
    apart = settle([reading(samples=(10.0,) * 30), reading(samples=(13.0,) * 2), reading(samples=(10.0,) * 30)])[0]
    assert ids(apart) == ["rounds_differ"]
    assert "30%" in assess(apart, SCENE).doubts[0].text


def test_the_host_and_the_card_are_held_against_a_row():
    context = {
        "stolen_share": 0.06,
        "other_cpus_max": 0.9,
        "throttled_hw_thermal_share": 0.5,
        "throttled_sw_power_cap_share": 0.01,
        "gpu_processes_max": 3.0,
    }
    judged = assess(row(context=context), SCENE)
    texts = {doubt.id: doubt.text for doubt in judged.doubts}
    assert texts == {
        "stolen": "6% stolen",
        "busy_host": "0.9 CPUs busy",
        "throttled": "throttled (hw thermal) 50%",
        "shared_gpu": "GPU shared with 2",
    }


def test_a_card_filled_by_another_container_is_shared_although_no_process_is_seen():
    used = situation([], machine(replace(H100, memory_used_bytes=30 * 2**30)))
    assert assess(row(), used).doubts[0].text == "30 GiB of the GPU in use before"
    assert ids(row("memory_copy", "cpu"), used) == []
    # a notebook that is listed and does nothing
    listed = replace(H100, memory_used_bytes=30 * 2**30, memory_accounted_bytes=29 * 2**30)
    assert ids(row(), situation([], machine(listed))) == []
    assert ids(row(), situation([], machine(replace(H100, memory_used_bytes=600 * 2**20)))) == []


def test_a_cold_read_is_doubted_where_cold_cannot_be_known():
    unknown = row("folder_read", "cpu", parameters={"cache": "unknown"}, context={"resident_share": 0.8})
    cold = row("folder_read", "cpu", parameters={"cache": "cold"})
    guest = situation([], Machine(host=Host(cpu_flags=("hypervisor",))), device="cpu")
    assert assess(unknown, SCENE).doubts[0].text == "80% still in memory"
    assert ids(cold, guest) == ["host_cache"]
    assert ids(cold, situation([], machine(), device="cpu")) == []


def test_every_doubt_is_explained():
    import ast
    import inspect

    from gpudoc.bench import assess as module

    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    given = {c.args[0].value for c in calls if getattr(c.func, "id", "") == "Doubt"}
    assert given == set(MEANINGS)
