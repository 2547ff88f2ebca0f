"""Whose time a profile says it was, and that other rows in the same words say nothing."""

import pytest

from gpudoc.doctor.causes import function_calls
from tests.doctor.causes.judge import told


def calls(own: float, who: str) -> str:
    head = "       9120 function calls (9000 primitive calls) in 60.500 seconds\n\n"
    return head + "   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n" + (
        f"      200   {own:.3f}    0.010   {own + 1:.3f}    0.020 {who}\n"
    )  # fmt: skip


CASES = [
    # a function of the user's, or one that waits, that takes much of what was profiled
    (
        "python_bound",
        "66% of the time in /home/me/p/targets.py:88(match)",
        calls(40.0, "/home/me/p/targets.py:88(match)"),
    ),
    ("gpu_sync_each_step", "", calls(40.0, "{method 'item' of 'torch._C.TensorBase' objects}")),
    ("dataloader_bottleneck", "", calls(40.0, "{method 'acquire' of '_thread.lock' objects}")),
    (None, "", calls(2.0, "/home/me/p/targets.py:88(match)")),
    (None, "", calls(40.0, "{method 'run_backward' of 'torch._C._EngineBase' objects}")),
    (None, "", calls(40.0, "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py:459(_conv_forward)")),
]


@pytest.mark.parametrize(("cause", "value", "text"), CASES)
def test_a_function_is_a_cause_where_it_takes_much_of_the_time(cause, value, text):
    found = told(function_calls.FINDERS, text)
    assert [one.id for one in found] == ([cause] if cause else [])
    assert not value or found[0].evidence[0].value == value
