from dataclasses import replace

from gpudoc.profile.model import ProfileTrial as Row
from gpudoc.render.tune_page import render_page, save

from .test_page import read, words
from .test_tune import result, with_levers  # noqa: F401  the fixture


def test_the_page_has_both_curves_every_trial_and_nothing_foreign(result, tmp_path):  # noqa: F811
    rows = (Row(kind="fit", batch=32, fits=True, peak_bytes=500 << 20, seconds=2.0), *result.profile.evidence.trials)
    evidence = result.profile.evidence.model_copy(update={"trials": rows})
    result = replace(result, profile=result.profile.model_copy(update={"evidence": evidence}))
    page = render_page(result)
    assert page.count('<svg class="wide"') == 2
    assert "119 (oom_host)" in page
    assert "&lt;a CPU&gt;" in page
    assert read(page).tags.count("script") == 1
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    save(tmp_path / "page.html", result)
    assert (tmp_path / "page.html").read_text() == page


def test_the_badge_is_the_gain_and_the_numbers_are_few(result):  # noqa: F811
    text = words(render_page(result))
    assert "✓ 1.88 times the default" in text
    assert "largest batch 118 proved" in text
    assert "memory limit" not in text
    evidence = result.profile.evidence.model_copy(update={"memory_limit_bytes": 1 << 30})
    lost = replace(result.findings, kept_default=True)
    even = replace(result, profile=result.profile.model_copy(update={"evidence": evidence}), findings=lost)
    text = words(render_page(even))
    assert "i none of the settings tried is faster" in text
    assert "memory limit 1 GiB" in text


def test_one_measured_batch_is_a_sentence_and_no_chart_of_one_dot(result):  # noqa: F811
    page = render_page(result)
    assert "Peak memory" not in page
    assert "Batch 118 took 950 MiB of 1 GiB. Did not fit: 119 (oom_host)." in words(page)


def test_a_sure_gain_is_the_largest_figure(result):  # noqa: F811
    page = render_page(result)
    first = page.partition('<dl class="figures">')[2].partition("</div>")[0]
    assert first.startswith('<div class="main"><dt>gain</dt>')
    assert "gain 1.88 times the speed" in words(page)
    assert "before</dd>" in first
    even = replace(result, findings=replace(result.findings, kept_default=True))
    assert 'class="main"' not in render_page(even)


def test_the_levers_stand_in_a_table_with_what_their_losses_were(result):  # noqa: F811
    assert "losses differ" not in words(render_page(result))
    text = words(render_page(with_levers(result)))
    assert "bf16 1.82 5 0.31 % 2 % kept " in text
    assert "torch.compile rejected, it failed in first steps" in text


def test_what_the_table_of_levers_says_is_said_once(result):  # noqa: F811
    levered = with_levers(result)
    why = (*levered.profile.why, *(row.why for row in levered.profile.evidence.variants))
    text = words(render_page(replace(levered, profile=levered.profile.model_copy(update={"why": why}))))
    assert "precision bf16: because" in text
    assert "bf16: 1.82 times the speed, because" not in text
