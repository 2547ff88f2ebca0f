import pytest

from gpudoc.profile.model import VariantTrial
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.loader import LaunchMeasures, costs_of, why_kept
from gpudoc.tune.loader.session import MeasurementError
from gpudoc.tune.model.loader import LoaderSetting
from gpudoc.tune.trial.messages import End, TrialRequest
from tests.script.pretended import Pretended, fed, loader, session_of


def measures_of(session):
    return LaunchMeasures(session, ScriptFindings(look=session.runner.look))


def test_the_fewest_workers_that_feed_the_step_are_found():
    # a batch takes one worker 80 ms, a step 28 ms: three workers
    runner = Pretended()
    found = fed(session_of(runner), seconds=1000.0)
    assert found.feed.num_workers == 3
    assert found.feed.persistent_workers
    assert len(runner.requests) <= 12
    assert any("num_workers 3" in reason for reason in found.feed_reasons)


def test_a_step_that_hardly_waits_keeps_its_loader():
    runner = Pretended(sample_s=0.00001)
    found = fed(session_of(runner), seconds=1000.0)
    assert found.feed is None
    assert runner.requests == []
    assert "nothing to gain" in found.feed_reasons[0]


@pytest.mark.parametrize(
    ("built", "says"),
    [
        (loader(iterable=True, sharded=False), "get_worker_info"),
        (loader(number=5), "no DataLoader fed the steps"),
    ],
)
def test_a_loader_whose_workers_would_change_the_data_is_left(built, says):
    session = session_of(Pretended(), built=built)
    assert says in why_kept(session.runner.look)
    assert fed(session, seconds=1000.0).feed is None


def test_an_iterable_that_shards_is_searched():
    assert why_kept(session_of(Pretended(), built=loader(iterable=True, sharded=True)).runner.look) == ""


def test_a_setting_that_the_script_refuses_ends_the_search_with_its_reason():
    found = fed(session_of(Pretended(refuses={"num_workers": "the data set cannot be pickled"})), seconds=1000.0)
    assert found.feed is None
    assert "cannot be pickled" in found.feed_reasons[0]


def test_workers_that_must_not_persist_do_not():
    found = fed(session_of(Pretended(refuses={"persistent_workers": "the data set changes"})), seconds=1000.0)
    assert found.feed.num_workers > 0
    assert not found.feed.persistent_workers
    assert any("persistent_workers stays" in reason for reason in found.feed_reasons)


def test_stretches_of_one_setting_are_launches_of_their_own():
    runner = Pretended()
    measures = measures_of(session_of(runner))
    setting = LoaderSetting(num_workers=2)
    measures.run(setting, seconds=1.0, period_s=0.1)
    run = measures.run(setting, seconds=1.0, period_s=0.1)
    assert [request.repeat for request in runner.requests] == [0, 1]
    assert run.step_s == pytest.approx(0.04)


def test_a_launch_that_fails_is_no_figure():
    runner = Pretended(fixed_bytes=1 << 40)
    measures = measures_of(session_of(Pretended(), launches=runner))
    with pytest.raises(MeasurementError, match="allocate"):
        measures.run(LoaderSetting(num_workers=1), seconds=1.0, period_s=0.1)


def test_costs_come_from_steps_without_workers_and_memory_from_one_worker():
    session = session_of(Pretended())
    measures = measures_of(session)
    alone, helped = measures.without_workers(), measures.with_one()
    alone = alone.model_copy(update={"measured": {**alone.measured, "cpu_s": 0.03, "private_bytes": 5e8}})
    helped = helped.model_copy(update={"measured": {**helped.measured, "private_bytes": 7e8, "shm_bytes": 4e6}})
    costs = costs_of(session.runner.look, alone, helped)
    assert costs.mean_batch_s == pytest.approx(0.08)
    assert costs.step_s == pytest.approx(0.028)
    assert costs.worker_cpu_s + costs.step_cpu_s == pytest.approx(0.03)
    assert costs.worker_private_bytes == 200_000_000
    assert costs.batch_bytes == 2_000_000


def test_a_loader_for_which_no_time_was_left_is_not_searched_and_the_first_line_says_so():
    class Late(Pretended):
        def run(self, request, *, patience_s):
            trial = super().run(request, patience_s=patience_s)
            return trial.model_copy(update={"end": End.TIME_UP, "detail": "the budget was over"})

    found = fed(session_of(Pretended(), launches=Late()), seconds=1000.0)
    assert found.feed is None
    assert found.unsearched.startswith("the loader was not searched: the budget was over")
    found.tried.append(VariantTrial(name="threads that sleep", changes={}, kept=False, why="not faster"))
    found.kept_default = True
    assert (found.verdict.kind, found.verdict.why) == ("none_faster", found.unsearched)


CROWD = {"other_cpus": 1.0, "busy_share": 1.0}


@pytest.mark.parametrize(("crowd", "workers"), [({}, 2), (CROWD, 3)])
def test_next_to_other_processes_the_workers_are_those_that_the_step_needs_without_them(crowd, workers):
    # a batch takes one worker 80 ms, a step 28 ms, or 84 ms in one of four
    found = fed(session_of(Pretended(slowed=(1.0, 1.0, 1.0, 3.0), beside=crowd)), seconds=1000.0)
    assert found.feed.num_workers == workers
    assert any("if no other process uses the CPUs" in reason for reason in found.feed_reasons) == bool(crowd)


def test_a_script_without_workers_is_not_launched_once_more_without_them():
    runner = Pretended()
    session = session_of(runner)
    session.runner.own = runner.run(TrialRequest(kind="look", batches=(), steps=24), patience_s=1.0)
    runner.requests.clear()
    assert fed(session, seconds=3600.0).feed.num_workers == 3
    assert (0, 0) not in {(request.feed.num_workers, request.repeat) for request in runner.requests}
