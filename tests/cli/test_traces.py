from __future__ import annotations

import json
import subprocess
import sys

from gpudoc.cli import app
from tests.fakes.traces import Step, planted

# four profiled steps whose data set sleeps
PROGRAM = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, at):
        time.sleep(0.01)
        return torch.zeros(8)

model = torch.nn.Linear(8, 8)
steps = schedule(wait=1, warmup=1, active=4)
with profile(activities=[ProfilerActivity.CPU], schedule=steps, with_stack=True) as profiler:
    for at, batch in enumerate(DataLoader(Slow(), batch_size=8)):
        model(batch).sum().backward()
        profiler.step()
        if at == 5:
            break
profiler.export_chrome_trace(sys.argv[1])
"""


def test_a_trace_that_torch_wrote_shows_loading_and_its_line(tmp_path, capsys):
    (tmp_path / "train.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "train.py", "trace.json"], cwd=tmp_path, check=True, capture_output=True)
    assert app.run(["doctor", str(tmp_path / "trace.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("torch.profiler trace · 4 steps · ")
    assert "[too_few_workers, " in shown
    assert "at: train.py:" in shown


def test_json_holds_the_parts_of_a_step(tmp_path, capsys):
    path = planted(Step(data=20_000), steps=10).write(tmp_path / "t.json")
    assert app.run(["doctor", str(path), "--json", "--fail-on", "warning"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["findings"][0]["id"] == "dataloader_bottleneck"
    assert document["trace"]["num_steps"] == 10
    assert abs(sum(document["trace"]["parts_ms"].values()) - document["trace"]["step_ms"]) < 0.1


def test_two_traces_are_compared_and_what_changed_most_comes_first(tmp_path, capsys):
    before = planted(Step(data=20_000), steps=10).write(tmp_path / "before.json")
    after = planted(Step(), steps=10).write(tmp_path / "after.json")
    assert app.run(["doctor", str(before), str(after)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("compared with before.json"))
    assert "times as fast" in lines[at]
    assert lines[at + 1].split()[:2] == ["loading", "data"]
    assert lines[-1].startswith("Healthy: ")


def test_a_page_and_a_file_are_written(tmp_path, capsys):
    path = planted(Step(talk=4_000), steps=10).write(tmp_path / "t.json")
    assert app.run(["doctor", str(path), "--html", str(tmp_path / "p.html"), "--out", str(tmp_path / "o.json")]) == 0
    assert "communication" in (tmp_path / "p.html").read_text()
    assert capsys.readouterr().err == f"wrote {tmp_path / 'o.json'}\nwrote {tmp_path / 'p.html'}\n"
    assert json.loads((tmp_path / "o.json").read_text())["trace"]["device"] == 0


def test_traces_and_other_files_are_not_mixed(tmp_path, capsys):
    path = planted(Step()).write(tmp_path / "t.json")
    (tmp_path / "log").write_text("CUDA out of memory")
    assert app.run(["doctor", str(path), str(tmp_path / "log")]) == 2
    assert "other sources are not" in capsys.readouterr().err
    assert app.run(["doctor", *[str(path)] * 3]) == 2
    assert "at most two" in capsys.readouterr().err
