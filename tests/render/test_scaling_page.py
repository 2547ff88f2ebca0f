from dataclasses import replace

from gpudoc.render.page import page
from gpudoc.render.scaling_page import scaling_sections
from gpudoc.render.tune_page import render_page
from gpudoc.tune.search.scaling import ScalingResult
from gpudoc.workload.config import load_config

from .test_scaling import scaling  # noqa: F401  the fixture


def test_the_sections_hold_the_verdict_the_curve_and_every_row(scaling):  # noqa: F811
    text = page("t", scaling_sections(scaling))
    assert text.count('<svg class="wide"') == 1
    assert "2 processes train at 1.00 times the speed of one" in text
    assert "no memory &lt;left&gt;" in text
    assert text.count("<tr>") == 4
    assert "one rank alone with as many threads" in text
    assert "Measured with micro batch 32 on every rank (weak scaling), 4 MiB of gradients" in text


def test_the_measurement_alone_is_a_page_of_its_own(scaling):  # noqa: F811
    result = ScalingResult(scaling=scaling, config=load_config("quickstart"), num_trials=4, seconds=9.0)
    text = render_page(result)
    assert "<h1>gpudoc tune --only scaling</h1>" in text
    assert "4 trials in 9 s" in text
    assert text.count("<script") == 1


def test_on_gpus_the_efficiency_is_against_one_rank_alone(scaling):  # noqa: F811
    text = page("t", scaling_sections(replace(scaling, device="cuda")))
    assert "Efficiency is relative to the same rank alone" in text
