"""What a run's own numbers say, and that other numbers in the same words say nothing."""

import pytest

from gpudoc.doctor.causes import timed
from tests.doctor.causes.judge import told

BAR = "Map:  61%|██████    | 610000/1000000 [{}<11:32, 560.1 examples/s]\n    with args.main_process_first(desc='map'):"


def calls(own: float, who: str) -> str:
    head = "       9120 function calls (9000 primitive calls) in 60.500 seconds\n\n"
    return head + "   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n" + (
        f"      200   {own:.3f}    0.010   {own + 1:.3f}    0.020 {who}\n"
    )  # fmt: skip


def epochs(*clocks: str) -> str:
    return "".join(f"100%|####| 469/469 [{clock}<00:00, 1.2it/s]\n" for clock in clocks)


CASES = [
    # a bar that ends at the limit of a barrier was one rank's work
    ("nccl_timeout_one_rank_busy", "29 min 58 s of work when it ended", BAR.format("29:58")),
    ("nccl_timeout_one_rank_busy", "30 min 12 s of work when it ended", BAR.format("30:12")),
    ("nccl_timeout_one_rank_busy", "10 min 3 s of work when it ended", BAR.format("10:03")),
    (None, "", BAR.format("04:10")),
    (None, "", BAR.format("30:12").split("\n")[0]),
    # epochs that become much shorter read from the storage first
    ("slow_storage", "773 s for the first pass over the data, 125 s for the last", epochs("12:53", "04:10", "02:05")),
    (None, "", epochs("12:53", "12:50", "12:49")),
    (None, "", epochs("12:53", "02:05")),
    (None, "", epochs("00:09", "00:04", "00:02")),
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
def test_a_number_of_the_run_is_a_cause_where_it_costs_something(cause, value, text):
    found = told(timed.FINDERS, text)
    assert [one.id for one in found] == ([cause] if cause else [])
    assert not value or found[0].evidence[0].value == value
