from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoc.cli import app
from gpudoc.doctor import document
from gpudoc.doctor.examine import Request, examine
from gpudoc.render.doctor import render
from gpudoc.render.doctor_output import render_markdown, shareable
from gpudoc.render.doctor_page import render_page
from tests.fakes.rank_logs import FAULTS, apart, plant


@pytest.fixture
def job(tmp_path):
    planted = plant(FAULTS[0], apart, 24, seed=1)
    return planted, planted.write(tmp_path)


def test_the_first_screen_names_the_rank_its_host_its_line_and_what_followed(job):
    planted, folder = job
    screen = " ".join(render(examine(Request(sources=(str(folder),)))).split())
    assert "one job: 24 ranks on 3 nodes, 24 logs" in screen
    assert f"first: rank {planted.rank} on {planted.host} raised an exception (" in screen
    assert f"{planted.host}/rank_{planted.rank}.log line" in screen
    assert f"lost the connection to rank {planted.rank}" in screen
    assert "missing_key" in screen


def test_documents_and_pages_hold_the_block_and_no_name_of_a_host(job):
    planted, folder = job
    clean = shareable(examine(Request(sources=(str(folder),))), redact=True)
    plain = document.dump(clean)
    assert plain["job"]["attempts"][0]["rank"] == planted.rank
    assert plain["job"]["attempts"][0]["host_name"].startswith("<host-")
    for text in (json.dumps(plain), render_markdown(clean), render_page(clean)):
        assert "node00" not in text
        assert f"rank {planted.rank}" in text


def test_a_saved_document_is_read_again_with_the_block(job, tmp_path):
    _, folder = job
    report = examine(Request(sources=(str(folder),)))
    loaded = document.load(json.loads(json.dumps(document.dump(report))))
    assert loaded.job is not None
    assert render(loaded).splitlines()[1:8] == render(report).splitlines()[1:8]


def test_a_control_character_in_a_log_is_shown_and_not_obeyed(tmp_path, capsys):
    lines = [f"[rank{rank}]: RuntimeError: Connection closed by peer\n" for rank in range(4) if rank != 2]
    lines.append("[rank2]: KeyError: 'a\x1b]0;title\x07\u202eb'\n")
    log = Path(tmp_path, "job.log")
    log.write_text("".join(lines), encoding="utf-8")
    assert app.run(["doctor", str(log), "--plain"]) == 1
    printed = capsys.readouterr().out
    assert "rank 2" in printed
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)
