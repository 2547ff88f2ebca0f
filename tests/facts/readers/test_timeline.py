from __future__ import annotations

import pytest

from gpudoc.doctor.causes.step_trace import FINDERS
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.facts.readers.kineto import read_trace
from gpudoc.facts.readers.timeline import StepPart, summarise
from tests.fakes.traces import IN_MAIN, Step, planted, write_nsys, write_nsys_lines

# what is planted, the cause, the part of a step and its milliseconds
PLANTED = {
    "waits for its data": (Step(data=20_000), "dataloader_bottleneck", StepPart.DATA, 10.0),
    "loads in the main process": (Step(data=20_000, loader=IN_MAIN), "too_few_workers", StepPart.DATA, 10.0),
    "small kernels": (Step(kernels=200, kernel=5, launch=50), "launch_bound", StepPart.LAUNCH, 9.0),
    "Python in the loop": (Step(python=15_000, reads=True), "python_bound", StepPart.PYTHON, 15.0),
    "communication": (Step(talk=4_000), "communication_bound", StepPart.COMMUNICATION, 4.0),
    "pageable copies": (Step(copy=3_000), "pageable_copies", StepPart.COPY, 3.0),
}


def judged(tmp_path, trace):
    timeline = summarise(read_trace(trace.write(tmp_path / "trace.json")))
    return timeline, diagnose(Evidence(source="file", timeline=timeline), finders=FINDERS)


@pytest.mark.parametrize("name", PLANTED)
def test_the_part_that_hides_nothing_is_named_with_its_milliseconds(tmp_path, name):
    step, cause, part, ms = PLANTED[name]
    timeline, report = judged(tmp_path, planted(step, steps=20))
    assert report.findings[0].id == cause
    assert report.verdict == "warning"
    assert timeline.parts[part] == pytest.approx(ms, rel=0.1)


def test_parts_of_a_step_add_up_to_the_step(tmp_path):
    everything = Step(data=3_000, kernels=40, kernel=80, launch=60, python=2_000, reads=True, talk=900, copy=700)
    timeline, _ = judged(tmp_path, planted(everything))
    assert sum(timeline.parts.values()) == pytest.approx(timeline.step_ms, rel=0.01)


def test_a_step_that_computes_is_healthy_and_hidden_communication_costs_nothing(tmp_path):
    timeline, report = judged(tmp_path, planted(Step(hidden_talk=2_000), steps=20))
    assert report.verdict == "healthy"
    assert [one.id for one in report.findings] == ["compute_bound"]
    assert timeline.hidden_ms == pytest.approx(2.0, rel=0.1)
    assert timeline.share(StepPart.COMMUNICATION) < 0.01


def test_a_read_of_a_value_is_blamed_on_its_line(tmp_path):
    slow = Step(kernels=3, kernel=210, launch=200, reads=True)
    timeline, report = judged(tmp_path, planted(slow, steps=20))
    (found,) = [one for one in report.findings if one.id == "gpu_sync_each_step"]
    assert "train.py:41 in train_one_epoch" in found.fix[0].say
    assert timeline.places[StepPart.SYNC][0][0] == "train.py:41 in train_one_epoch"


def test_one_step_is_too_few_to_blame_anything(tmp_path):
    timeline, report = judged(tmp_path, planted(Step(data=20_000), steps=1))
    assert not timeline.is_steady
    assert report.verdict == "healthy"
    assert {one.severity for one in report.findings} == {"info"}


@pytest.mark.parametrize("write", [write_nsys, write_nsys_lines])
def test_the_same_steps_from_nsight_systems_give_the_same_parts(write, tmp_path):
    trace = planted(Step(talk=4_000), steps=20)
    mine = summarise(read_trace(trace.write(tmp_path / "trace.json")))
    theirs = summarise(read_trace(write(tmp_path / "trace", trace)))
    assert (theirs.trace.tool, theirs.num_steps) == ("Nsight Systems", 20)
    for part in (StepPart.COMPUTE, StepPart.COMMUNICATION):
        assert theirs.parts[part] == pytest.approx(mine.parts[part], rel=0.02)
