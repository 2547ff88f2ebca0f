from gpudoc.doctor.causes.job_memory import FINDERS
from gpudoc.doctor.model import Evidence
from gpudoc.facts.process import Pages
from tests.doctor.causes.judge import sees
from tests.facts.live.made import USER, stacks, track, watch, worker

GROWS, COPIES = (finder.find for finder in FINDERS)
MIB = 1 << 20
LEAK = tuple((i / 2, 300 * MIB + 4 * MIB * i) for i in range(41))
KEPT = {(USER, 44): "losses.append(loss)"}


def grows(threads, *processes, **changes):
    """A job of which the first process leaks unless others are given."""
    seen = threads if isinstance(threads, dict) else {1: threads}
    return watch(seen, list(processes) or [track(memory=LEAK)], **changes)


def crowded(seconds, age_s=600.0, gets=0.2):
    """A job that runs in a part of its time, wants to all the time, and grows steadily."""
    grown = tuple((i / 2, 300 * MIB + 4 * MIB * i) for i in range(int(2 * seconds) + 1))
    shares = {"main_cpu_s": gets * seconds, "main_queued_s": (1 - gets) * seconds}
    return grows("backward*1200", track(memory=grown, last_s=seconds, age_s=age_s, **shares), seconds=seconds)


def pages(own, mapped=lambda t: 900 * MIB):
    """Ten looks in 18 seconds."""
    return tuple(Pages(2.0 * i, int(mapped(2.0 * i)), int(own(2.0 * i))) for i in range(10))


def copies(looks=None, watched=None, **worker_):
    """A job with a worker whose pages were looked at."""
    known = worker_ if looks is None else {"pages": looks, **worker_}
    return watch({1: "backward*100", 2: "w_fetch*100"}, [track(), worker(2, **known)], **(watched or {}))


def only(find, seen):
    (found,) = find(Evidence(source="process", watch=seen))
    return found


COPYING = pages(lambda t: (300 + 5 * t) * MIB)
RANKS = grows({1: "backward*100", 2: "backward*100"}, track(1, rank=0, memory=LEAK), track(2, rank=1))
IN_WORKER = watch(stacks({1: "backward*100", 2: "w_fetch*100"}, KEPT), [track(), worker(2, memory=LEAK)])

test_memory_that_grows = sees([
    (GROWS, grows("backward*100"), "host_memory_leak: 17 min"),
    # the line that keeps the graph, which is not blamed for a worker that grows
    (GROWS, watch(stacks({1: "backward*100"}, KEPT), [track(memory=LEAK)]), "leak_graph_kept: train.py:44"),
    (GROWS, IN_WORKER, "host_memory_leak: a loader worker"),
    # growth while starting up and few steps say nothing
    (GROWS, grows("import*50 backward*50"), "skipped"),
    (GROWS, grows("forward*20 backward*20 " * 5), "skipped: 5 steps"),
    (GROWS, grows("forward*5 backward*5 " * 20), "host_memory_leak"),
    # a job that others keep from its CPUs warms up slowly and is looked at for longer
    (GROWS, crowded(25.0), "skipped: leave the job 20 % of the CPU"),
    (GROWS, crowded(25.0), "skipped: --seconds 90"),
    (GROWS, crowded(90.0), "host_memory_leak"),
    # ten seconds of work take fifty here, so that a young one has not settled for long enough
    (GROWS, crowded(60.0, age_s=0.0), ""),
    (GROWS, crowded(60.0, age_s=0.0, gets=1.0), "host_memory_leak"),
])  # fmt: skip
test_workers_that_copy_what_they_read = sees([
    (COPIES, copies(COPYING), "worker_copy_on_write_growth: 5 MiB per second"),
    # what a worker allocates is no copy
    (COPIES, copies(pages(lambda t: (300 + 5 * t) * MIB, lambda t: (900 + 5 * t) * MIB)), ""),
    # pages copied at once after the fork are normal
    (COPIES, copies(pages(lambda t: (300 + (200 if t > 1 else 0)) * MIB)), ""),
    (COPIES, copies(pages(lambda t: (300 + 50 * min(t, 5)) * MIB), age_s=0.0), ""),
    (COPIES, grows("backward*100", track()), ""),
    # what nothing can be said of is skipped with the reason
    (COPIES, copies(), "skipped: Pss_Anon"),
    (COPIES, copies(COPYING, {"seconds": 5.0}), "skipped: --seconds 20"),
    (COPIES, copies(COPYING, died_during_watch=True), "skipped: started or ended"),
])  # fmt: skip


def test_ranks_are_advised_to_try_with_one_arena():
    assert only(GROWS, RANKS).fix[0].run.startswith("MALLOC_ARENA_MAX=1 ")
    assert not any("MALLOC" in remedy.run for remedy in only(GROWS, grows("backward*100")).fix)


def test_copies_are_shown_with_the_time_left_when_they_do_not_fit():
    small = only(COPIES, copies(COPYING))
    assert small.severity == "warning"
    assert any("300 MiB to 390 MiB of 900 MiB" in o.value for o in small.evidence)
    large = only(COPIES, copies(pages(lambda t: (300 + 5 * t) * MIB, lambda t: 90_000 * MIB)))
    left = [next(o.value for o in found.evidence if o.fact == "time_left") for found in (small, large)]
    assert "fits" in left[0]
    assert "until memory is full" in left[1]
