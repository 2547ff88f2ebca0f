import re
from dataclasses import replace
from itertools import pairwise

import pytest

from gpudoc.doctor.live.judge import judge
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.render.watch_page import render_page, save
from tests.facts.live.made import watch

from .test_page import read, words
from .test_watch import FINE, SLOW


def test_the_page_has_the_cause_the_shares_and_a_timeline():
    page = render_page(judge(SLOW), SLOW)
    assert read(page).tags.count("svg") == 1
    assert "waiting for data, 12.00 s" in page
    text = words(page)
    assert "! warning" in text
    assert "waiting for data 60% including loading in the main process" in text
    assert "the fix gains 2.50x as fast as now, estimated" in text
    assert 'aria-label="waiting for data 60%, backward 30%, forward 10%"' in page


def test_what_is_not_known_is_a_box_of_its_own():
    assert "No bottleneck found" in words(render_page(judge(FINE), FINE)) or judge(FINE).findings
    blind = watch({}, stacks=Absent("py-spy was not allowed to look"))
    text = words(render_page(judge(blind), blind))
    assert "Less certain: no stacks were seen py-spy was not allowed to look" in text


def test_text_from_the_job_is_escaped():
    odd = watch({1: "python*80 backward*20"})
    odd.stacks.lines[("/home/me/train.py", 30)] = "<script>alert(1)</script>"
    assert read(render_page(judge(odd), odd)).tags.count("script") == 1


def test_saving(tmp_path):
    save(tmp_path / "p.html", judge(SLOW), SLOW)
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    with pytest.raises(GpudocError, match="cannot be written"):
        save(tmp_path / "no" / "p.html", judge(SLOW), SLOW)


@pytest.mark.parametrize("seconds", [3.0, 5.0, 8.02, 17.3, 61.0])
def test_the_times_under_a_timeline_are_round_and_stand_where_they_belong(seconds):
    seen = replace(SLOW, seconds=seconds)
    page = render_page(judge(seen), seen)
    ticks = [(float(at), float(says)) for at, says in re.findall(r'left:([\d.]+)%">([\d.]+) s</span>', page)]
    assert 4 <= len(ticks) <= 7
    assert all(abs(says / seconds * 100 - at) < 0.1 for at, says in ticks)
    steps = {round(after - before, 6) for (_, before), (_, after) in pairwise(ticks)}
    assert len(steps) == 1
    assert steps <= {0.5, 1.0, 2.0, 5.0, 20.0}
