from gpudoc.errors import GpudocError
from gpudoc.tune.trial.failure import describe_failure
from gpudoc.tune.trial.messages import End


def test_failures_are_told_with_the_traceback_only_when_it_is_the_users():
    mine = describe_failure(GpudocError("no such thing", hint="that one", exit_code=2))
    assert (mine.end, mine.detail, mine.hint, mine.code) == (End.USER_ERROR, "no such thing", "that one", 2)
    theirs = describe_failure(KeyError("x"))
    assert "KeyError" in theirs.traceback
    assert describe_failure(MemoryError()).traceback == ""


def test_a_first_line_that_only_introduces_the_cause_does_not_stand_alone():
    told = describe_failure(RuntimeError("backend='inductor' raised:\n\nRuntimeError: no C compiler\nmore"))
    assert told.detail == "RuntimeError: backend='inductor' raised: RuntimeError: no C compiler"
