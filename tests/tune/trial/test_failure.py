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


def test_the_users_traceback_has_no_frame_of_gpudoc():
    from gpudoc.workload.build import Step

    def fails(output, target):
        raise LookupError("mine")

    try:
        Step(loss=fails, name="x").loss(lambda batch: batch, [1, 2])
    except LookupError as problem:
        told = describe_failure(problem).traceback
    assert "in fails" in told
    assert "LookupError: mine" in told
    assert "gpudoc/workload" not in told


def test_where_no_frame_is_the_users_those_after_gpudoc_are_told():
    import torch

    from gpudoc.workload.build import Step

    try:
        Step(loss=torch.nn.CrossEntropyLoss(), name="x").loss(torch.nn.Identity(), [torch.ones(2, 2), "text"])
    except Exception as problem:
        told = describe_failure(problem).traceback
    assert "torch/nn/functional.py" in told
    assert "gpudoc/workload" not in told
