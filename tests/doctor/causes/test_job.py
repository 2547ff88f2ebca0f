from gpudoc.doctor.causes.job import FINDERS
from gpudoc.doctor.model import Evidence
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Absent
from tests.doctor.causes.judge import sees
from tests.facts.live.made import gpu, track, watch

WELL = FINDERS[-1].find
BUSY = [track(main_cpu_s=19.0, cpu_s=19.0)]
COMPUTES = watch({1: "forward*30 backward*60 optimizer*10"}, BUSY)
WAITED_FOR = watch({1: "sync*60 forward*30 backward*10"}, gpus=(gpu(busy=98, power=390.0),))


def counted(**each):
    return watch(
        {1: "forward*30 backward*60 optimizer*10"}, BUSY, gpus=(gpu(busy=100, sm_active_percent=90.0, **each),)
    )


test_a_job_that_computes = sees([
    (WELL, COMPUTES, "compute_bound: 100 %"),
    # a busy GPU is healthy though the host waits for it
    (WELL, WAITED_FOR, "compute_bound: GPU is busy 98 %"),
    # what works of the GPU is said where it is counted; little of it is not called healthy, and no fault either
    (WELL, counted(tensor_active_percent=40.0), "compute_bound: Healthy: the GPU is busy 100 % of the time, its tensor cores 40 %"),
    (WELL, counted(tensor_active_percent=4.0), "compute_bound: could do more: the GPU is busy 100 % of the time, its tensor cores 4 %"),
    # any other cause takes its place, and a thread that uses no CPU does not compute
    (WELL, watch({1: "forward*60 python*40"}, BUSY), ""),
    (WELL, watch({1: "wait*60 forward*40"}, BUSY), ""),
    (WELL, watch({1: "forward*100"}, [track(main_cpu_s=0.5, cpu_s=0.5)]), ""),
    (WELL, watch(Absent("ptrace refused")), "skipped"),
])  # fmt: skip


def test_computing_on_the_cpu_is_healthy_and_says_what_may_still_help():
    (found,) = WELL(Evidence(source="process", watch=COMPUTES))
    assert (found.severity, bool(found.fix)) == ("info", True)
    assert "backward 60 %" in found.evidence[0].value


def test_every_finder_reads_the_watch_and_is_in_the_catalogue():
    assert all(f.reads == "watch" and f.id in CATALOGUE for f in FINDERS)
    assert len({f.id for f in FINDERS}) == len(FINDERS)
