"""The funnel to NVML: what any one answer says of a GPU as a whole is kept, wherever in the questions it comes."""

from __future__ import annotations

import pytest

from gpudoc.facts.model import Absent
from gpudoc.facts.nvml import plain_bus_id
from tests.fakes.machine import H100, QUESTIONS, FakeMachine


@pytest.fixture
def machine(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    return fake


def sick_one_by_one(machine, code):
    """A machine on which GPU n answers question n with `code`, and one more GPU is well."""
    machine.gpus(H100, len(QUESTIONS) + 1)
    for index, question in enumerate(QUESTIONS):
        machine.error(question, code, index)
    return machine.collect(quick=True).gpus


@pytest.mark.parametrize("code", [15, 16])
def test_lost_and_reset_required_count_from_whatever_question_they_come(machine, code):
    *sick, well = sick_one_by_one(machine, code)
    missed = {
        QUESTIONS[gpu.index]: gpu.nvml_code for gpu in sick if gpu.nvml_code != code or gpu.lost is not (code == 15)
    }
    assert missed == {}
    assert (well.nvml_code, well.lost) == (0, False)


@pytest.mark.parametrize("code", [999, 10, 20])
def test_another_error_counts_only_from_a_question_that_every_gpu_answers(machine, code):
    *asked, _ = sick_one_by_one(machine, code)
    sick = {QUESTIONS[gpu.index] for gpu in asked if gpu.nvml_code == code}
    assert sick == {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"}
    assert {gpu.nvml_code for gpu in asked} == {0, code}


@pytest.mark.parametrize("code", [3, 4, 13])
def test_a_question_that_is_declined_says_nothing_of_the_gpu(machine, code):
    *asked, _ = sick_one_by_one(machine, code)
    assert {gpu.nvml_code for gpu in asked[1:]} == {0}


def test_lost_outranks_reset_required_and_names_its_question(machine):
    machine.gpus(H100)
    machine.error("nvmlDeviceGetName", 999)
    machine.error("nvmlDeviceGetTemperature.0", 16)
    machine.error("nvmlDeviceGetPcieReplayCounter", 15)
    (gpu,) = machine.collect(quick=True).gpus
    assert (gpu.nvml_code, gpu.nvml_question, gpu.lost) == (15, "nvmlDeviceGetPcieReplayCounter", True)
    assert gpu.temperature_c == Absent("the GPU needs a reset")


def test_a_hang_leaves_the_gpus_behind_it_unknown_and_not_well(machine):
    from gpudoc.facts import Deadlines

    machine.gpus(H100, 3)
    machine.hang("nvmlDeviceGetUUID", 1)
    first, second, third = machine.collect(quick=True, deadlines=Deadlines(driver_s=3.0, files_s=5.0)).gpus
    reason = Absent("no answer within 11 s, stuck in the kernel: nvmlDeviceGetUUID")
    assert first.nvml_code == 0
    assert (second.nvml_code, second.temperature_c, third.name, third.link.width) == (reason,) * 4


@pytest.mark.parametrize(
    ("told", "plain"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        (b"00010000:01:00.0", "10000:01:00.0"),
        ("00000001:3B:00.0", "0001:3b:00.0"),
    ],
)
def test_a_domain_keeps_all_its_digits_but_leading_noughts(told, plain):
    assert plain_bus_id(told) == plain
