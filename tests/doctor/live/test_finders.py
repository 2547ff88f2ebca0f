import pytest

from gpudoc.doctor.live.finders import busiest, watched
from gpudoc.doctor.live.say import finding
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import Absent
from tests.facts.live.made import gpu, watch

HERE = watch({1: "backward*100"}, gpus=(gpu(busy=20), gpu(busy=80)))
BLIND = watch(Absent("ptrace refused"), limits=Absent("no /proc"))
SHORT = watch({1: "backward*3"})


def ask(judge, seen=HERE):
    return list(watched("job_hung", judge).find(Evidence(source="process", watch=seen)))


def test_a_judge_is_given_the_parts_that_it_names():
    given = []

    def judge(watch, job, ranks, lead, devices, gpu, limits):
        given.extend((watch.pid, job.cpus, ranks[0].pid, lead.pid, len(devices), gpu.busy, limits.cpus_online))

    assert ask(judge) == []
    assert given == [1, 8.0, 1, 1, 2, 0.8, 8]


def test_what_a_judge_answers_is_the_answer():
    found = finding("job_hung", lost=1.0, title="", evidence=())
    assert ask(lambda watch: found) == [found]
    assert ask(lambda watch: Skip("no reason")) == [Skip("no reason")]


@pytest.mark.parametrize(
    ("judge", "seen", "reason"),
    [
        (lambda lead: pytest.fail("asked"), BLIND, "stacks: ptrace refused"),
        (lambda ranks: pytest.fail("asked"), BLIND, "stacks: ptrace refused"),
        (lambda limits: pytest.fail("asked"), BLIND, "limits: no /proc"),
        (lambda lead: pytest.fail("asked"), SHORT, "no training process was seen"),
        (lambda watch, devices: pytest.fail("asked"), SHORT, "NVML: not found"),
        (lambda gpu: pytest.fail("asked"), SHORT, "NVML: not found"),
    ],
)
def test_a_part_that_was_not_seen_skips_the_judge_with_the_reason(judge, seen, reason):
    assert ask(judge, seen) == [Skip(reason)]


def test_the_busiest_gpu_is_the_one_to_speak_of():
    assert busiest(HERE).busy == 0.8
