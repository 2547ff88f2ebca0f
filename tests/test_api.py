"""gpudoc from Python: real machines, jobs and trainings; each document is the one that the command prints."""

import dataclasses
import json
import pickle
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gpudoc import api
from gpudoc.errors import GpudocError
from gpudoc.fix.options import FixOptions
from gpudoc.progress import SILENT
from gpudoc.tune.options import SearchOptions
from tests.train.support import write_workload

TOO_OLD = (
    "PyTorch version: 2.6.0+cu124\nNvidia driver version: 470.57.02\n"
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
)


def printed(*arguments, **options):
    """The document that `gpudoc ... --json` prints."""
    command = [sys.executable, "-m", "gpudoc", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False, **options).stdout)


def test_importing_it_imports_no_library():
    code = "import sys, gpudoc.api; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "numpy", "rich", "pydantic", "yaml", "psutil", "typer", "pathlib", "subprocess"}
    assert not heavy & set(found)
    assert [name for name in found if name.startswith("gpudoc")] == ["gpudoc", "gpudoc.api"]


def test_a_text_a_file_and_an_exception_are_diagnosed(tmp_path):
    found = api.diagnose(TOO_OLD)
    assert found["schema"] == "gpudoc.doctor.v1"
    assert (found["verdict"], found["findings"][0]["id"], found.exit_code) == ("broken", "driver_too_old", 1)
    place = tmp_path / "report.txt"
    place.write_text(TOO_OLD)
    told, command = api.diagnose(place), printed("doctor", place)
    assert {**told, "seconds": 0} == {**command, "seconds": 0}
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    assert api.diagnose(caught.value)["findings"][0]["id"] == "gpu_ecc_error"


def test_without_a_source_it_is_this_machine_and_the_python_that_runs(tmp_path, monkeypatch):
    venv.create(tmp_path / "other", symlinks=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    found = api.diagnose(quick=True, ignore=("no_gpu_on_machine",), redact=False)
    assert found["source"] == "machine"
    assert found["facts"]["python"]["executable"] == sys.executable
    assert "no_gpu_on_machine" not in [finding["id"] for finding in found["findings"]]
    with pytest.raises(GpudocError, match="no such cause"):
        api.diagnose(quick=True, ignore=("no_such",))


def test_names_are_taken_out_unless_they_are_wanted():
    text = f"{TOO_OLD}\n/home/alice.b/train.py HF_TOKEN=hf_abcdefghijklmnopqrstuvwx"
    assert "hf_abcdef" not in json.dumps(api.diagnose(text))
    assert api.diagnose(text, redact=False)["schema"] == "gpudoc.doctor.v1"


def test_a_document_is_data_a_screen_and_a_page(tmp_path, monkeypatch):
    found = api.diagnose(TOO_OLD)
    assert json.loads(json.dumps(found)) == found
    copy = pickle.loads(pickle.dumps(found))
    assert (type(copy), copy) == (dict, found)
    assert "driver_too_old" in str(found)
    assert found.save(tmp_path / "page.html").read_text("utf-8") == found.html
    assert found._repr_html_().startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html&gt;')
    said = []
    found._repr_pretty_(type("Printer", (), {"text": said.append})(), False)
    assert said == [str(found)]


def test_rich_shows_the_screen_with_its_brackets():
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as shown:
        console.print(api.diagnose(TOO_OLD))
    assert "[driver_too_old, " in shown.get()


def test_a_running_job_is_watched():
    code = "import time\nwhile True: sum(range(1000))"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        found = api.watch(process.pid, seconds=1.5)
    finally:
        process.kill()
        process.wait()
    assert (found["schema"], found["source"]) == ("gpudoc.doctor.v1", "process")
    assert f"process {process.pid}" in str(found)
    assert "<h1>gpudoc doctor</h1>" in found.html
    with pytest.raises(GpudocError, match="no process 4194303"):
        api.watch(2**22 - 1, seconds=1.5)


class Heard:
    def __init__(self):
        self.said, self.steps = [], 0

    def say(self, text):
        self.said.append(text)

    def advance(self, done, total, text):
        self.steps += 1


def test_the_bench_reports_its_progress_and_returns_the_record():
    heard = Heard()
    found = api.run_bench(only="clock", quick=True, device="cpu", progress=heard)
    assert {row["name"] for row in found["measurements"]} == {"cpu_clock"}
    assert (found["schema"], found.exit_code) == ("gpudoc.bench.v1", 0)
    assert heard.said == ["measuring the CPU, as requested"]
    assert heard.steps > 0
    assert "quick run on the CPU" in str(found)
    assert "<h1>gpudoc bench</h1>" in found.html
    with pytest.raises(GpudocError, match="no such case"):
        api.run_bench(only="nothing", quick=True, device="cpu")


def test_training_runs_apart_and_returns_its_summary(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_workload(tmp_path, log_every=2)
    heard = Heard()
    found = api.run_train("cfg.yaml", steps=4, profile="off", device="cpu", set={"seed": 3}, progress=heard)
    assert (found["schema"], found["status"], found["steps"]) == ("gpudoc.train.v1", "finished", 4)
    assert found["settings"]["seed"] == {"value": 3, "from": "flag"}
    assert found == json.loads(Path("runs/cfg/summary.json").read_text())
    assert any(line.startswith("step 4/4") for line in heard.said)
    assert "final loss" in str(found)
    assert "Training of cfg" in found.html


def test_fix_returns_the_document_of_its_command_and_takes_its_options(tmp_path, monkeypatch):
    from gpudoc.fix import run as run_module
    from tests.fix.test_run import result_of

    path, asked = tmp_path / "train.py", []
    monkeypatch.chdir(tmp_path)

    def found(options, progress):
        asked.append(options)
        return dataclasses.replace(result_of(path, "a = 1\n", "a = 2\n"), options=options)

    monkeypatch.setattr(run_module, "run", found)
    document = api.run_fix(["python", path], budget="90s", patch="x.patch", progress=SILENT)
    assert asked == [FixOptions(command=("python", str(path)), budget="90s", patch=Path("x.patch"))]
    assert (document["schema"], document.exit_code) == ("gpudoc.fix.v1", 1)
    assert "-a = 1\n+a = 2" in document["diff"]
    assert "a proved change" in str(document)
    assert "<h1>gpudoc fix</h1>" in document.html


def test_fix_says_what_cannot_be_fixed():
    with pytest.raises(GpudocError, match="put a command after --"):
        api.run_fix([], progress=SILENT)


def test_the_options_of_a_fix_are_those_of_its_command():
    known = {field.name for field in dataclasses.fields(FixOptions)}
    assert set(api.FixSettings.__annotations__) == known - {"command"}


def test_tuning_says_what_cannot_be_tuned():
    with pytest.raises(GpudocError) as caught:
        api.run_tune("missing.yaml", budget="5s", progress=SILENT)
    assert "missing.yaml" in caught.value.message


@pytest.mark.slow
def test_tuning_returns_the_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_workload(tmp_path)
    found = api.run_tune("cfg.yaml", budget="60s", device="cpu", max_batch=8, out=tmp_path / "p.yaml")
    assert found["profile"]["settings"]["micro_batch"] <= 8
    assert (tmp_path / "p.yaml").exists()
    assert "your default" in str(found)
    assert "<h1>gpudoc tune</h1>" in found.html


def test_the_language_of_a_diagnosis_can_be_chosen():
    found = api.diagnose("RuntimeError: CUDA out of memory", language="ru")
    assert found["language"] == "ru"
    assert "исправить:" in str(found)
    assert '<html lang="ru">' in found.html


def test_the_options_of_a_search_are_those_of_its_command():
    """What only a command after -- has, and what runs nothing, is no option here."""
    known = {field.name for field in dataclasses.fields(SearchOptions)}
    others = {"model", "command", "allow", "in_place", "target"}
    assert set(api.TuneOptions.__annotations__) == set(known) - others
