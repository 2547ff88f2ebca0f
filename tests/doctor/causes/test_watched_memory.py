from gpudoc.doctor.causes.watched_memory import find_copied_pages, find_memory_growth
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.process import Pages
from tests.facts.live.made import USER, stacks, track, watch, worker

MIB = 1 << 20
LEAK = tuple((i / 2, 300 * MIB + 4 * MIB * i) for i in range(41))
LOADED = {1: "backward*100", 2: "w_fetch*100"}


def ask(find, *arguments, **changes):
    return list(find(Evidence(source="process", watch=watch(*arguments, **changes))))


def pages(own, mapped=lambda t: 900 * MIB):
    """Ten looks in 18 seconds."""
    return tuple(Pages(2.0 * i, int(mapped(2.0 * i)), int(own(2.0 * i))) for i in range(10))


def test_memory_that_grows_with_the_time_left():
    (found,) = ask(find_memory_growth, {1: "backward*100"}, [track(memory=LEAK)])
    assert found.id == "host_memory_leak"
    assert "17 min" in found.title


def test_ranks_are_advised_to_try_with_one_arena():
    loops = {1: "backward*100", 2: "backward*100"}
    (found,) = ask(find_memory_growth, loops, [track(1, rank=0, memory=LEAK), track(2, rank=1)])
    assert found.fix[0].run.startswith("MALLOC_ARENA_MAX=1 ")
    (alone,) = ask(find_memory_growth, {1: "backward*100"}, [track(memory=LEAK)])
    assert not any("MALLOC" in remedy.run for remedy in alone.fix)


def crowded(seconds, age_s=600.0, gets=0.2):
    """A process that runs in a part of its time, wants to all the time, and grows steadily."""
    grown = tuple((i / 2, 300 * MIB + 4 * MIB * i) for i in range(int(2 * seconds) + 1))
    runs, waits = gets * seconds, (1 - gets) * seconds
    return track(memory=grown, last_s=seconds, age_s=age_s, main_cpu_s=runs, main_queued_s=waits)


def test_a_job_that_others_keep_from_its_cpus_is_looked_at_for_longer_since_it_warms_up_slowly():
    loop = {1: "backward*1200"}
    (skipped,) = ask(find_memory_growth, loop, [crowded(25.0)], seconds=25.0)
    assert isinstance(skipped, Skip)
    assert "leave the job 20 % of the CPU" in skipped.because
    assert skipped.because.endswith("--seconds 90")
    (found,) = ask(find_memory_growth, loop, [crowded(90.0)], seconds=90.0)
    assert found.id == "host_memory_leak"
    # ten seconds of work take fifty here, so that a young one has not settled for long enough
    assert ask(find_memory_growth, loop, [crowded(60.0, age_s=0.0)], seconds=60.0) == []
    assert ask(find_memory_growth, loop, [crowded(60.0, age_s=0.0, gets=1.0)], seconds=60.0) != []


def test_the_line_that_keeps_the_graph():
    kept = stacks({1: "backward*100"}, {(USER, 44): "losses.append(loss)"})
    (found,) = ask(find_memory_growth, kept, [track(memory=LEAK)])
    assert found.id == "leak_graph_kept"
    assert "train.py:44" in found.title


def test_a_worker_that_grows_is_not_blamed_on_the_loop():
    kept = stacks({1: "backward*100", 2: "w_fetch*100"}, {(USER, 44): "losses.append(loss)"})
    (found,) = ask(find_memory_growth, kept, [track(), worker(2, memory=LEAK)])
    assert found.id == "host_memory_leak"
    assert "a loader worker" in found.title


def test_growth_while_starting_up_says_nothing():
    assert isinstance(ask(find_memory_growth, {1: "import*50 backward*50"}, [track(memory=LEAK)])[0], Skip)


def test_workers_that_copy_what_they_read():
    copying = worker(2, pages=pages(lambda t: (300 + 5 * t) * MIB))
    (found,) = ask(find_copied_pages, LOADED, [track(), copying])
    assert found.id == "worker_copy_on_write_growth"
    assert found.severity == "warning"
    assert "5 MiB per second" in found.title
    assert any("300 MiB to 390 MiB of 900 MiB" in o.value for o in found.evidence)


def test_the_time_left_is_named_only_when_the_copies_do_not_fit():
    small, large = (
        next(o.value for o in ask(find_copied_pages, LOADED, [track(), one])[0].evidence if o.fact == "time_left")
        for one in (
            worker(2, pages=pages(lambda t: (300 + 5 * t) * MIB)),
            worker(2, pages=pages(lambda t: (300 + 5 * t) * MIB, lambda t: 90_000 * MIB)),
        )
    )
    assert "fits" in small
    assert "until memory is full" in large


def test_what_a_worker_allocates_is_no_copy():
    leaking = worker(2, pages=pages(lambda t: (300 + 5 * t) * MIB, lambda t: (900 + 5 * t) * MIB))
    assert ask(find_copied_pages, LOADED, [track(), leaking]) == []


def test_pages_copied_at_once_after_the_fork_are_normal():
    settled = worker(2, pages=pages(lambda t: (300 + (200 if t > 1 else 0)) * MIB))
    assert ask(find_copied_pages, LOADED, [track(), settled]) == []
    young = worker(2, age_s=0.0, pages=pages(lambda t: (300 + 50 * min(t, 5)) * MIB))
    assert ask(find_copied_pages, LOADED, [track(), young]) == []


def test_copies_of_which_nothing_can_be_said_are_skipped_with_the_reason():
    copying = pages(lambda t: (300 + 5 * t) * MIB)
    (bare,) = ask(find_copied_pages, LOADED, [track(), worker(2)])
    assert isinstance(bare, Skip)
    assert "Pss_Anon" in bare.because
    (brief,) = ask(find_copied_pages, LOADED, [track(), worker(2, pages=copying)], seconds=5.0)
    assert "--seconds 20" in brief.because
    (restarted,) = ask(find_copied_pages, LOADED, [track(), worker(2, pages=copying, died_during_watch=True)])
    assert "began or ended" in restarted.because
    assert ask(find_copied_pages, {1: "backward*100"}, [track()]) == []


def test_few_steps_say_nothing_of_a_leak():
    (skipped,) = ask(find_memory_growth, {1: "forward*20 backward*20 " * 5}, [track(memory=LEAK)])
    assert isinstance(skipped, Skip)
    assert "5 steps" in skipped.because
    (found,) = ask(find_memory_growth, {1: "forward*5 backward*5 " * 20}, [track(memory=LEAK)])
    assert found.id == "host_memory_leak"
