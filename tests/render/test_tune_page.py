from gpudoc.render.tune_page import render_page, save

from .test_tune import result  # noqa: F401  the fixture


def test_the_page_has_both_curves_every_trial_and_nothing_foreign(result, tmp_path):  # noqa: F811
    page = render_page(result)
    assert page.count("<svg") == 2
    assert "119 (oom_host)" in page
    assert "&lt;a CPU&gt;" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    save(tmp_path / "page.html", result)
    assert (tmp_path / "page.html").read_text() == page
