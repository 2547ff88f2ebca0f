import pytest

from gpudoc.errors import GpudocError
from gpudoc.script.command import Command
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.stages import planned_launches, run_stages, say_plan
from gpudoc.tune.options import SearchOptions
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import End, TrialRequest
from tests.script.pretended import Pretended, loader, session_of
from tests.tune.trial.test_deadline import Clock


def options(*words, **changes):
    return SearchOptions(command=tuple(words) or ("python", "train.py"), **changes)


def search(runner, asked, *, lever="loader", **changes):
    session = session_of(runner, command=Command(asked.command), **changes)
    found = ScriptFindings(look=session.runner.look, lever=lever)
    found.defaults.append(session.run(TrialRequest(kind="look", batches=(), steps=24)))
    runner.requests.clear()
    run_stages(session, asked, found)
    return found


def test_every_part_is_searched_and_the_found_is_compared_with_trial_0_in_turns():
    runner = Pretended()
    found = search(runner, options())
    assert found.feed.num_workers == 3
    assert found.largest.is_proved
    # the launch with one worker tells what a worker takes, and is none of those that were chosen from
    # one worker was launched for what it costs, and held against nothing
    tried = {trial.request.feed for trial in found.feed_trials if trial.request.feed.num_workers > 1}
    assert found.num_tried["loader"] == len(tried)
    kinds = [request.kind for request in runner.requests if request.kind in ("joint", "default")]
    assert kinds == ["joint", "default", "default", "joint"]
    ratio = found.gain.ratio
    assert ratio.middle == pytest.approx(108 / 28, rel=0.05)
    assert ratio.low <= ratio.middle <= ratio.high


def test_only_the_loader_leaves_the_batch():
    runner = Pretended()
    found = search(runner, options(only="loader"))
    assert (found.largest, found.choice) == (None, None)
    assert runner.asked("fit") == []
    assert runner.asked("joint")[0].batches == ()


def test_a_batch_of_the_loader_is_compared_only_when_it_was_allowed():
    for allow, batches in (("", ()), ("batch", None)):
        runner = Pretended()
        found = search(runner, options(allow=allow, goal="largest"))
        assert runner.asked("joint")[0].batches == (batches if batches is not None else (found.batch,))


def test_a_batch_in_the_command_is_asked_for_and_compared():
    runner = Pretended()
    found = search(runner, options("python", "t.py", "{batch}", goal="largest"), lever="flag")
    assert runner.asked("joint")[0].batches == (found.batch,)


def test_settings_that_lose_in_the_end_are_not_kept():
    class Fickle(Pretended):
        def run(self, request, *, patience_s):
            trial = super().run(request, patience_s=patience_s)
            if request.kind != "joint":
                return trial
            return trial.model_copy(update={"measured": {**trial.measured, "samples_per_s": 1.0}})

    found = search(Fickle(), options(only="loader"))
    assert found.feed is None
    assert "own settings are kept" in found.why_kept
    assert found.gain.chosen == found.gain.default
    assert found.verdict.kind == "none_faster"


def test_settings_that_are_faster_in_some_launches_alone_are_not_kept_for_their_speed():
    class Wanders(Pretended):
        def run(self, request, *, patience_s):
            trial = super().run(request, patience_s=patience_s)
            if request.kind != "joint":
                return trial
            speed = 20.0 if request.repeat else 200.0
            return trial.model_copy(update={"measured": {**trial.measured, "samples_per_s": speed}})

    found = search(Wanders(), options(only="loader"))
    assert (found.feed, found.kept_default) == (None, True)
    assert "own settings are kept" in found.why_kept


def test_nothing_changed_is_nothing_to_compare():
    runner = Pretended(sample_s=0.0)
    found = search(runner, options(only="loader"))
    assert found.kept_default
    assert runner.requests == []


def test_a_command_that_eats_its_batch_is_told_after_two_launches():
    runner = Pretended(eats=True)
    with pytest.raises(GpudocError, match="does not reach the loader"):
        search(runner, options("python", "t.py", "{batch}", only="batch"), lever="flag")
    assert len(runner.asked("fit")) == 2


def test_a_loader_that_refuses_its_batch_size_ends_that_part_alone():
    runner = Pretended(refuses={"batch_size": "it is built from a batch sampler"})
    found = search(runner, options(only="batch"))
    assert found.lever == "none"
    assert "built from a batch sampler" in found.why_no_lever


def test_the_plan_says_launches_first_and_minutes_once_one_was_timed():
    assert planned_launches(options(only="look")) == {"look": 1}
    said = say_plan(options(budget="600s"), None)
    assert "28 launches" in said
    assert "at most 10 min" in said
    assert "about 4 min 30 s to go" in say_plan(options(budget="600s"), 10.0)


def test_a_device_without_known_memory_leaves_the_batch():
    runner = Pretended()
    found = search(runner, options(only="batch"), limit_bytes=None)
    assert (found.largest, found.choice) == (None, None)
    assert "--memory-limit" in found.why_no_lever


def test_a_script_without_a_lever_says_so():
    runner = Pretended()
    built = loader(own_batch_sampler=True, batch_size=None)
    found = search(runner, options(only="batch"), lever="none", built=built)
    assert runner.requests == []
    assert (found.largest, found.choice) == (None, None)


def test_a_batch_that_is_not_found_loses_nothing_of_the_loader():
    class Broken(Pretended):
        def run(self, request, *, patience_s):
            trial = super().run(request, patience_s=patience_s)
            if request.kind != "fit":
                return trial
            return trial.model_copy(update={"end": End.USER_ERROR, "detail": "shapes do not match", "points": ()})

    found = search(Broken(), options())
    assert found.feed.num_workers == 3
    assert any("shapes do not match" in note for note in found.notes)
    with pytest.raises(GpudocError, match="shapes do not match"):
        search(Broken(), options(only="batch"))


def test_without_time_to_compare_the_search_s_own_launches_tell_the_gain():
    clock = Clock()

    class Late(Pretended):
        """The budget is over once three workers have run."""

        def run(self, request, *, patience_s):
            clock.now_s += 1000.0 if request.feed is not None and request.feed.num_workers == 3 else 0.0
            return super().run(request, patience_s=patience_s)

    runner = Late()
    until = Deadline(budget_s=900.0, since=clock.now_s, clock=clock)
    session = session_of(runner, deadline=until)
    look = runner.run(TrialRequest(kind="look", batches=()), patience_s=1.0)
    found = ScriptFindings(look=session.runner.look, lever="loader", defaults=[look])
    run_stages(session, options(only="loader"), found)
    assert runner.asked("joint") == []
    assert found.verdict.kind == "faster"
    assert found.gain.ratio.middle == pytest.approx(108 / 28, rel=0.05)
    assert any("no time was left for a final comparison" in note for note in found.notes)


class Interrupted(Pretended):
    """Ctrl+C comes at the launch of that number that has another loader."""

    def __init__(self, at, **model):
        super().__init__(**model)
        self.at = at

    def run(self, request, *, patience_s):
        if len(self.asked("loader")) == self.at and request.kind == "loader":
            raise KeyboardInterrupt
        return super().run(request, patience_s=patience_s)


class Heard:
    """The lines that a search says."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def advance(self, done, total, text):
        pass


def interrupted(at, heard=None, **model):
    runner = Interrupted(at, **model)
    session = session_of(runner)
    session.progress = heard or session.progress
    look = runner.run(TrialRequest(kind="look", batches=()), patience_s=1.0)
    found = ScriptFindings(look=session.runner.look, lever="loader", defaults=[look])
    with pytest.raises(KeyboardInterrupt):
        run_stages(session, options(), found)
    return found


def test_a_search_that_is_interrupted_keeps_the_fastest_loader_that_it_has_run():
    # after the launches without workers and with one
    found = interrupted(2)
    assert found.feed.num_workers == 1
    assert found.verdict.kind == "faster"
    assert found.gain.ratio.middle == pytest.approx(108 / 80, rel=0.05)
    assert any("interrupted before the final comparison" in note for note in found.notes)
    assert "before the search ended" in found.feed_reasons[0]


def test_a_loader_that_is_no_faster_than_the_scripts_own_is_no_answer_of_an_interrupted_search():
    # one worker makes a batch no sooner than the script itself, and the step takes no time
    found = interrupted(2, fixed_s=0.0005, step_s=0.00001)
    assert found.feed is None


def test_each_faster_loader_is_said_as_soon_as_it_has_run():
    heard = Heard()
    interrupted(3, heard)
    said = [line for line in heard.lines if "so far" in line]
    assert [line.split()[3].rstrip(",") for line in said] == ["1", "3"]
    assert "1.35 times the script's own speed" in said[0]


def test_a_script_whose_launch_takes_ten_seconds_has_a_proposal_within_a_minute():
    clock, said_at, began_s = Clock(), [], 0.0

    class Slow(Pretended):
        """Ten seconds to the first step, and three for those that are timed."""

        def run(self, request, *, patience_s):
            clock.now_s += 13.0
            return super().run(request, patience_s=patience_s)

    class Stamped(Heard):
        def say(self, text):
            if "so far" in text:
                said_at.append(clock.now_s - began_s)

    runner = Slow()
    session = session_of(runner)
    began_s = clock.now_s
    session.progress = Stamped()
    session.deadline = Deadline(budget_s=300.0, since=began_s, clock=clock)
    look = runner.run(TrialRequest(kind="look", batches=(), steps=24), patience_s=1.0)
    session.runner.own = look
    found = ScriptFindings(look=session.runner.look, lever="loader", defaults=[look])
    run_stages(session, options(), found)
    # after the look and the launch with one worker, and once more for those that feed the step
    assert said_at == [2 * 13.0, 3 * 13.0]
