from gpudoc.render.script_page import render_page, save
from tests.render.test_page import words
from tests.script.pretended import result_of, searched


def test_the_page_shows_the_script_the_settings_memory_loader_and_launches(tmp_path):
    save(tmp_path / "page.html", result_of(*searched()))
    text = (tmp_path / "page.html").read_text("utf-8")
    for part in ("The script as it is", "What was found", "<svg", "The loader", "Every launch", "num_workers=3"):
        assert part in text, part
    assert "Did not fit" in text
    assert "://" not in text.replace("http://www.w3.org", "")


def test_a_look_has_a_page_without_what_was_not_done():
    options, found, session = searched(only="look")
    text = render_page(result_of(options, found, session, profile=None, stored=None))
    assert "Nothing was tuned" in text
    assert "Every launch" not in text
    assert "gpudoc tune -- python train.py" in text


def test_the_gain_over_the_script_is_the_largest_figure():
    result = result_of(*searched())
    page = render_page(result)
    ratio = result.findings.gain.ratio
    assert result.findings.verdict.kind == "faster"
    assert f'<div class="main"><dt>gain</dt><dd class="value">{ratio.middle:.2f} ' in page
    assert f"✓ {ratio.middle:.2f} times the script as it is" in words(page)


def test_a_look_shows_the_step_and_its_wait_and_no_gain():
    options, found, session = searched(only="look")
    page = render_page(result_of(options, found, session, profile=None, stored=None))
    assert "step as it is" in words(page)
    assert 'class="main"' not in page
