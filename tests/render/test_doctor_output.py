from __future__ import annotations

import json

import pytest

from gpudoc.doctor import document
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.errors import GpudocError
from gpudoc.facts.model import GpuProcess
from gpudoc.render.doctor_output import Output, render_markdown, shareable, show
from tests.doctor.causes.judge import report_of
from tests.machines.built import GIB, gpu, machine

from .test_page import read

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
    plain = document.dump(shareable(SECRET, redact=True))
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
    assert "alert(1)" in page
    assert read(page).tags.count("script") == 1


def test_markdown_has_commands_in_fences_and_no_broken_code_marks():
    text = render_markdown(SECRET)
    assert "```sh\n" in text
    assert "`x`" not in text


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GpudocError, match="cannot be written"):
        show(SECRET, Output(out=tmp_path / "none" / "r.json", json=True))


def test_a_step_that_ends_work_is_marked_in_every_form(capsys):
    report = report_of("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, CTXSW_TIMEOUT")
    assert "disruptive: Reset the GPU" in render_markdown(report)
    show(report, Output(json=True))
    steps = json.loads(capsys.readouterr().out)["findings"][0]["fix"]
    assert [step["disruptive"] for step in steps if "--gpu-reset" in step["run"]] == [True]


def test_users_of_gpus_are_redacted_in_what_leaves_the_machine_and_named_on_the_terminal(capsys, tmp_path):
    held = GpuProcess(pid=4711, memory_bytes=78 * GIB, alive=True, user="annika", own=False, command="python train.py",
                      container="docker 3f2a91c04d17 (annika-run)")  # fmt: skip
    facts = machine(gpu(0, processes=(held,), memory_free_bytes=GIB))
    report = diagnose(Evidence(source="machine", machine=facts))
    show(report, Output(json=True))
    plain = json.loads(capsys.readouterr().out)
    assert "annika" not in json.dumps(plain)
    assert plain["facts"]["gpus"][0]["processes"][0]["user"] == "<user-1>"
    assert "<user-1>'s python train.py" in plain["findings"][0]["evidence"][0]["value"]
    assert plain["findings"][0]["cards"][0]["index"] == 0
    show(report, Output(markdown=True))
    assert r"| 0 | 4711 | \<user-1\> |" in capsys.readouterr().out
    show(report, Output(html=tmp_path / "p.html"))
    assert "annika" in capsys.readouterr().out
    assert '<td class="n">4711</td>' in (tmp_path / "p.html").read_text("utf-8")
    show(report, Output(json=True, redact=False))
    assert '"user": "annika"' in capsys.readouterr().out


def test_markdown_shows_the_gpus():
    report = diagnose(Evidence(source="machine", machine=machine(gpu(0), gpu(1))))
    assert "| 1 | H100 80GB HBM3 | 0.5/80.0 | 34 |" in render_markdown(report)
