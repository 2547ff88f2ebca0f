import json

from gpudoc.errors import ExitCode
from gpudoc.render.train_page import read_metrics, train_page
from gpudoc.train.events import Finished
from tests.render.test_page import words
from tests.train.support import summary, train_here, write_workload


def test_a_torn_last_line_is_left_out_and_no_file_is_no_rows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]


def test_the_page_holds_the_run_and_needs_nothing_from_elsewhere(tmp_path):
    write_workload(tmp_path, evaluated=True, log_every=2, eval_every=4)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--steps", "12", "--profile", "off") == 0
    found = summary(tmp_path / "runs" / "cfg")
    found["run_dir"] = str(tmp_path / "runs" / "cfg")
    train_page(Finished(summary=found, exit_code=ExitCode.OK, reason="", go_on=None), tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text("utf-8")
    assert "<svg" in text
    assert f"final training loss {found['final_loss']:.4g}" in words(text)
    assert "✓ finished" in words(text)
    assert 'class="bar"' in text
    assert "micro_batch" in text
    assert 'src="http' not in text
    assert 'href="http' not in text


def test_the_command_writes_the_page(tmp_path, capsys):
    write_workload(tmp_path)
    code = train_here(
        tmp_path, "--model", "cfg.yaml", "--steps", "4", "--profile", "off", "--html", "run.html", "--json"
    )
    assert code == 0
    assert json.loads(capsys.readouterr().out)["status"] == "finished"
    assert (tmp_path / "run.html").stat().st_size > 2000
