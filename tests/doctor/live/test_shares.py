import pytest

from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.shares import summarise
from gpudoc.facts.model import Absent
from tests.facts.live.made import track, watch, worker


def test_shares_of_the_main_thread_and_the_lines_behind_them():
    rank = summarise(watch({1: "wait*60 backward*30 python*10"})).lead
    assert rank.phases == {Phase.DATA_WAIT: 0.6, Phase.BACKWARD: 0.3, Phase.PYTHON: 0.1}
    assert rank.sites[Phase.PYTHON][0].frame.line == 30
    assert rank.share(Phase.DATA_WAIT, Phase.PYTHON) == pytest.approx(0.7)


def test_workers_are_no_ranks_and_are_busy_while_they_fetch():
    job = summarise(watch({1: "wait*100", 2: "w_fetch*90 w_idle*10", 3: "w_idle*100"}, [track(), worker(2), worker(3)]))
    assert [r.pid for r in job.ranks] == [1]
    assert [round(w.busy, 2) for w in job.workers] == [0.9, 0.0]
    assert job.workers[0].sites[0].frame.file == "/home/me/data.py"
    assert job.num_workers == 2


def test_imports_before_the_first_batch_do_not_count():
    rank = summarise(watch({1: "import*50 backward*50"})).lead
    assert rank.startup_samples == 50
    assert rank.phases == {Phase.BACKWARD: 1.0}


def test_workers_that_live_one_after_the_other_are_not_added_up():
    generations = [worker(10 + i, first_s=5.0 * i, last_s=5.0 * i + 4.9, born_during_watch=i > 0) for i in range(4)]
    job = summarise(watch({1: "wait*100"}, [track(), *generations]))
    assert job.num_workers == 1
    assert job.worker_births == 3


def test_demand_counts_threads_that_wait_for_a_cpu():
    job = summarise(watch({1: "backward*100"}, [track(cpu_s=30.0, queued_s=50.0)], cpus=2))
    assert job.cpu_used == pytest.approx(1.5)
    assert job.cpu_demand == pytest.approx(4.0)


def test_of_several_ranks_the_one_that_waits_least_for_others_leads():
    job = summarise(watch({1: "collective*90 backward*10", 2: "backward*100"}, [track(1, rank=0), track(2, rank=1)]))
    assert job.lead.rank == 1


def test_half_a_second_of_samples_gives_no_lead():
    assert summarise(watch({1: "backward*10"})).lead is None


def test_without_stacks_there_are_processes_still():
    job = summarise(watch(Absent("ptrace refused"), [track(), worker(2)]))
    assert not job.ranks
    assert job.lead is None
    assert len(job.workers) == 1


def test_a_rank_that_stands_still_is_a_rank_and_its_helpers_are_not():
    ranks = [track(1, parent=9, rank=0), track(2, parent=9, rank=1), track(3, parent=2, rank=1)]
    job = summarise(watch({1: "collective*100", 2: "sleep*100", 3: "sleep*100"}, ranks))
    assert [r.pid for r in job.ranks] == [1, 2]
