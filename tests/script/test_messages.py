"""A line of the inside is exactly one kind of event; running out of memory is told as everywhere else."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from gpudoc.process.shortage import Shortage
from gpudoc.script.messages import EVENTS, ErrorSeen, ExceptionLink, HookOrder, StepsMeasured


def test_a_line_says_its_kind():
    assert EVENTS.validate_json('{"kind": "measured", "at": 1.0}') == StepsMeasured(at=1.0)


@pytest.mark.parametrize("line", ['{"kind": "other", "at": 1.0}', '{"kind": "measured", "at": 1.0, "more": 1}', "{}"])
def test_what_is_no_event_is_a_mistake(line):
    with pytest.raises(ValidationError):
        EVENTS.validate_json(line)


def test_an_order_says_everything_in_plain_json():
    order = json.loads(HookOrder(purpose="look").model_dump_json())
    assert order["purpose"] == "look"
    assert order["loader"] is None
    assert order["keys"] == []


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (ExceptionLink(types=("OutOfMemoryError", "RuntimeError"), text="in whatever words"), Shortage.DEVICE),
        (
            ExceptionLink(types=("RuntimeError",), text="DefaultCPUAllocator: can't allocate memory: you tried"),
            Shortage.HOST,
        ),
        (ExceptionLink(types=("OSError",), text="", errno=12), Shortage.HOST),
        (ExceptionLink(types=("ValueError",), text="batch 9 is out of memory range"), None),
        (ExceptionLink(types=("RuntimeError",), text="mat1 and mat2 shapes cannot be multiplied"), None),
    ],
)
def test_an_exception_of_another_process_says_which_memory_ran_out(link, expected):
    other = ExceptionLink(types=("KeyError",), text="'x'")
    assert ErrorSeen(at=0.0, chain=(link,)).shortage is expected
    assert ErrorSeen(at=0.0, chain=(other, link)).shortage is expected
