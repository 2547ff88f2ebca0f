from gpudoc.doctor.live.say import PROC, at_sites, estimated, finding, percent, place
from gpudoc.doctor.live.shares import Site
from gpudoc.doctor.model import Observation
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame
from tests.facts.live.made import watch

HERE = watch({1: "backward*20"})


def test_a_place_is_written_from_the_jobs_own_folder():
    assert place(Frame("f", "/home/me/src/train.py", 7), HERE) == "src/train.py:7"
    assert place(Frame("f", "/opt/lib/data.py", 7), HERE) == "lib/data.py:7"
    assert place(Frame("f", "/home/me/train.py", 7), watch({1: "backward"}, directory=Absent("?"))) == "me/train.py:7"


def test_a_share_of_nothing_is_not_listed():
    sites = [Site(Frame("f", "/home/me/a.py", 1), 0.5, "x = 1"), Site(Frame("g", "/home/me/a.py", 2), 0.001)]
    assert [o.value for o in at_sites(sites, HERE, "at")] == ["a.py:1 50 %  x = 1"]
    assert percent(0.456) == "46 %"


def test_more_time_lost_comes_first_and_certainty_has_a_ceiling():
    little = finding("python_bound", lost=0.2, title="", evidence=(), fix=())
    much = finding("python_bound", lost=5.0, title="", evidence=(), fix=())
    assert little.confidence < much.confidence <= 0.98
    assert little.severity == "warning"


def test_a_hang_is_broken_and_a_slow_loop_is_not():
    assert finding("job_hung", lost=1.0, title="", evidence=()).severity == "broken"
    assert finding("python_bound", lost=1.0, title="", evidence=()).severity == "warning"


def test_the_gain_stands_among_the_first_observations():
    seen = [Observation(f"fact{i}", "", PROC) for i in range(7)]
    made = finding("python_bound", lost=0.2, title="", evidence=(*seen, estimated(2.0)), fix=())
    assert [o.fact for o in made.evidence][:3] == ["fact0", "estimated_gain", "fact1"]
