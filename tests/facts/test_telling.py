from __future__ import annotations

import json
import os

from gpudoc.facts.model import Absent, Host, Link
from gpudoc.facts.telling import Teller, plain


def told(tell):
    reader, writer = os.pipe()
    tell(Teller(writer))
    os.close(writer)
    with os.fdopen(reader) as lines:
        return [json.loads(line) for line in lines]


def test_each_fact_is_a_line_at_once():
    def tell(teller):
        teller.begin("nvmlInit")
        teller.fact("gpus.0.name", "T4")
        teller.end()

    assert told(tell) == [{"begin": "nvmlInit"}, {"fact": ["gpus", "0", "name"], "value": "T4"}, {"end": True}]


def test_only_fields_that_were_read_are_told():
    lines = told(lambda teller: teller.facts("host", Host(cpu_count=4, wsl=Absent("no permission"))))
    assert lines == [
        {"fact": ["host", "wsl"], "value": {"absent": "no permission"}},
        {"fact": ["host", "cpu_count"], "value": 4},
    ]


def test_nested_facts_become_plain_values():
    assert plain((Link(width=16), Absent("x"))) == [{"width": 16}, {"absent": "x"}]
