from dataclasses import replace

from gpudoc.render.tune_page import render_page, save

from .test_page import read, words
from .test_tune import result, with_levers  # noqa: F401  the fixture


def test_the_page_has_both_curves_every_trial_and_nothing_foreign(result, tmp_path):  # noqa: F811
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
    assert "i nothing that was tried is faster" in text
    assert "memory limit 1 GiB" in text


def test_the_levers_stand_in_a_table_with_what_their_losses_were(result):  # noqa: F811
    assert "times the speed" not in words(render_page(result))
    text = words(render_page(with_levers(result)))
    assert "bf16 1.82 5 0.31 % 2 % kept bf16: 1.82 times the speed, because" in text
    assert "not used torch.compile: rejected, it failed in first steps" in text
