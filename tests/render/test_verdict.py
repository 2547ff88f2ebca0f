from gpudoc.render.verdict import counted, first_line, with_budget
from gpudoc.tune.model.gain import gain_between
from gpudoc.tune.model.scaling import SpeedSpan
from gpudoc.tune.model.verdict import SearchVerdict, judge

BEFORE = SpeedSpan(100.0, 95.0, 105.0)


def said(after, tried=((6, "lever"), (2, "batch")), *, kept_default=False, needed_s=90.0):
    gain = gain_between(BEFORE, after, kept_default=kept_default)
    verdict = judge(gain, tried, "the budget ended", needed_s)
    command = ("gpudoc", "tune", "--", "python", "train.py", "{batch}")
    return first_line(verdict, gain, default="your default", told=" with your data", command=command)


def test_a_gain_comes_with_its_doubt_and_one_speed_for_each():
    assert said(SpeedSpan(150.0, 140.0, 160.0)) == (
        "1.50 times (1.33 to 1.68) as fast as your default: 150 samples/s ±7 % with your data, 100 samples/s before."
    )


def test_what_was_measured_once_has_no_bounds():
    gain = gain_between(SpeedSpan(80.0, 80.0, 80.0), SpeedSpan(320.0, 320.0, 320.0), kept_default=False)
    line = first_line(
        judge(gain, ((1, "loader setting"),), "", None), gain, default="the script as it is", told="", command=()
    )
    assert line.startswith("About 4.00 times (each measured once) as fast as the script as it is")


def test_what_lost_is_named_with_what_was_tried():
    assert said(SpeedSpan(90.0, 85.0, 94.0), kept_default=True) == (
        "Tried 6 levers and 2 batches; none is faster than your default: 100 samples/s ±5 % with your data; "
        "the settings found reached 0.90 times (0.81 to 0.99) that."
    )
    assert said(SpeedSpan(50.0, 45.0, 55.0)).startswith("Slower than your default, 0.50 times (0.43 to 0.58) its speed")


def test_what_no_time_was_left_for_stands_next_to_what_lost():
    verdict = SearchVerdict(kind="none_faster", tried=((1, "lever"),), why="the loader was not searched", needed_s=90.0)
    line = first_line(verdict, None, default="your default", told="", command=("gpudoc", "tune"))
    assert line == (
        "Tried 1 lever; none is faster than your default. But the loader was not searched. "
        "A search takes about 1 min 30 s: gpudoc tune --budget 90s"
    )


def test_a_search_without_time_names_the_command_that_has_it():
    assert said(None, (), kept_default=True) == (
        "Not searched: the budget ended. A search takes about 1 min 30 s: "
        "gpudoc tune --budget 90s -- python train.py {batch}"
    )
    assert said(None, (), kept_default=True, needed_s=None) == "Not searched: the budget ended."


def test_a_budget_stands_before_the_command():
    assert with_budget(("gpudoc", "tune", "--model", "x"), 200.0)[-2:] == ("--budget", "4m")


def test_things_are_counted_as_people_count():
    tried = ((1, "lever"), (1, "batch"), (3, "loader setting"))
    assert counted(SearchVerdict(kind="faster", tried=tried)) == "1 lever, 1 batch and 3 loader settings"
