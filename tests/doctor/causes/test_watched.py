from gpudoc.doctor.causes.watched import FINDERS, find_compute_bound
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Absent
from tests.facts.live.made import gpu, track, watch


def ask(threads, processes=None, **changes):
    return list(find_compute_bound(Evidence(source="process", watch=watch(threads, processes, **changes))))


BUSY = [track(main_cpu_s=19.0, cpu_s=19.0)]


def test_computing_on_the_cpu_is_healthy_and_says_what_may_still_help():
    (found,) = ask({1: "forward*30 backward*60 optimizer*10"}, BUSY)
    assert found.severity == "info"
    assert "100 %" in found.title
    assert "backward 60 %" in found.evidence[0].value
    assert found.fix


def test_a_busy_gpu_is_healthy_though_the_host_waits_for_it():
    (found,) = ask({1: "sync*60 forward*30 backward*10"}, gpus=(gpu(busy=98, power=390.0),))
    assert "GPU is busy 98 %" in found.title


def test_any_other_cause_takes_its_place():
    assert ask({1: "forward*60 python*40"}, BUSY) == []
    assert ask({1: "wait*60 forward*40"}, BUSY) == []


def test_a_thread_that_uses_no_cpu_does_not_compute():
    assert ask({1: "forward*100"}, [track(main_cpu_s=0.5, cpu_s=0.5)]) == []


def test_without_stacks_it_is_skipped():
    assert isinstance(ask(Absent("ptrace refused"))[0], Skip)


def test_every_finder_reads_the_watch_and_is_in_the_catalogue():
    assert all(f.reads == "watch" and f.id in CATALOGUE for f in FINDERS)
    assert len({f.id for f in FINDERS}) == len(FINDERS)
