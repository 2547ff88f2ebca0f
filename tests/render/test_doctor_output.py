from __future__ import annotations

import json

import pytest

from gpudoc.doctor import document
from gpudoc.errors import GpudocError
from gpudoc.render.doctor_output import Output, private, render_markdown, render_page, show
from tests.doctor.causes.judge import report_of

SECRET = report_of(
    "RuntimeError: CUDA error: uncorrectable ECC error encountered "
    "HF_TOKEN=hf_abcdefghijklmnopqrstuvwx /home/alice.b/run `x`"
)


def test_json_is_one_document_without_names(capsys):
    show(SECRET, Output(json=True))
    out = capsys.readouterr().out
    assert json.loads(out)["findings"][0]["id"] == "gpu_ecc_error"
    assert "hf_abc" not in out
    assert "alice" not in out


def test_no_redact_keeps_them(capsys):
    show(SECRET, Output(json=True, redact=False))
    assert "alice.b" in capsys.readouterr().out


def test_redaction_leaves_the_document_what_it_was():
    plain = private(document.dump(SECRET), Output())
    assert plain["schema"] == "gpudoc.doctor.v1"
    assert [f["id"] for f in plain["findings"]] == [f.id for f in SECRET.findings]
    assert plain["findings"][0]["fix"][0]["run"] == SECRET.findings[0].fix[0].run


@pytest.mark.parametrize(
    ("name", "mark"), [("r.json", '"schema"'), ("r.md", "### "), ("r.html", "<!doctype html>"), ("r.txt", "verdict:")]
)
def test_a_file_is_written_in_the_form_that_its_name_asks_for(tmp_path, capsys, name, mark):
    show(SECRET, Output(out=tmp_path / name))
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert mark in text
    assert "hf_abc" not in text
    assert "alice" not in text


def test_the_page_stands_alone_and_escapes_what_it_quotes(tmp_path, capsys):
    report = report_of("RuntimeError: CUDA error: uncorrectable ECC error encountered <script>alert(1)</script>")
    show(report, Output(html=tmp_path / "p.html"))
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http-equiv" not in page
    assert render_page(report).startswith("<!doctype html>")


def test_markdown_has_commands_in_fences_and_no_broken_code_marks():
    text = render_markdown(SECRET)
    assert "```sh\n" in text
    assert "`x`" not in text


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GpudocError, match="cannot be written"):
        show(SECRET, Output(out=tmp_path / "none" / "r.json", json=True))
