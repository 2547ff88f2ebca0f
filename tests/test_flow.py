"""The flow as a person runs it: doctor, bench, tune, train, each handing its result to the next as a file."""

import json
import math
import os
import subprocess
import sys

import pytest
import yaml

from tests.train.support import train_here

pytest.importorskip("torch")


def gpudoc(folder, *arguments, codes=(0,)):
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_DATA_HOME": str(folder / "data")},
        timeout=280,
    )
    assert done.returncode in codes, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The folder of a search, and the document that it printed."""
    folder = tmp_path_factory.mktemp("flow")
    search = ("tune", "--model", "quickstart", "--device", "cpu", "--budget", "2m", "--max-batch", "16")
    return folder, json.loads(gpudoc(folder, *search, "--json", "--html", "page.html").stdout)


@pytest.mark.slow
def test_doctor_and_bench_write_documents(tmp_path):
    gpudoc(tmp_path, "doctor", "--quick", "--out", "doctor.json", codes=(0, 1))
    doctor = json.loads((tmp_path / "doctor.json").read_text())
    assert doctor["schema"] == "gpudoc.doctor.v1"
    gpudoc(tmp_path, "bench", "--quick", "--device", "cpu", "--out", "bench.json")
    bench = json.loads((tmp_path / "bench.json").read_text())
    assert bench["schema"] == "gpudoc.bench.v1"
    assert all(row["value"] > 0 and row["samples"] for row in bench["measurements"] if row.get("value") is not None)
    assert any("matmul" in row["name"] for row in bench["measurements"])


def test_tune_writes_a_profile_that_names_no_machine(tuned):
    folder, document = tuned
    (path,) = (folder / "data" / "gpudoc" / "profiles").glob("*.yaml")
    text = path.read_text()
    profile = yaml.safe_load(text)
    assert profile["schema"] == "gpudoc.profile.v1"
    assert document["schema"] == "gpudoc.tune.v1"
    assert document["profile"] == json.loads(json.dumps(profile))
    assert profile["settings"]["micro_batch"] <= 16
    assert profile["evidence"]["speedup_over_default"] > 0
    assert profile["why"]
    for secret in (os.uname().nodename, str(folder), os.environ.get("USER") or "no-such-user"):
        assert secret not in text


def test_the_page_of_a_search_shows_the_curves_and_every_trial(tuned):
    folder, document = tuned
    page = (folder / "page.html").read_text()
    assert page.count("<svg") >= 1
    assert page.count("<tr>") > len(document["profile"]["evidence"]["trials"])
    assert page.count("<script") == 1, "the page's own"


def test_train_finds_the_profile_learns_and_says_what_it_did(tuned):
    folder, _ = tuned
    done = gpudoc(
        folder, "train", "--profile", "auto", "--model", "quickstart", "--device", "cpu", "--steps", "8", "--json"
    )
    summary = json.loads(done.stdout)
    assert summary["schema"] == "gpudoc.train.v1"
    assert summary["steps"] == 8
    assert summary["final_loss"] < math.log(256) - 1
    assert "profile " in done.stderr
    (run,) = (folder / "runs").iterdir()
    assert {"config.yaml", "profile.yaml", "metrics.jsonl", "summary.json", "checkpoints"} <= {
        entry.name for entry in run.iterdir()
    }
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 8


@pytest.mark.slow
def test_train_without_a_profile_says_which_preset_and_how_to_tune(tmp_path):
    done = gpudoc(tmp_path, "train", "--model", "quickstart", "--device", "cpu", "--steps", "2")
    assert "preset cpu" in done.stderr
    assert "gpudoc tune --model quickstart" in done.stderr


@pytest.mark.slow
def test_the_images_workload_trains_on_a_folder_that_the_command_drew(tmp_path):
    draw = [sys.executable, "-m", "gpudoc.workload.images", "images-data", "--per-class", "10"]
    subprocess.run(draw, cwd=tmp_path, check=True, capture_output=True)
    done = gpudoc(
        tmp_path, "train", "--model", "images", "--device", "cpu", "--steps", "3", "--num-workers", "2", "--json"
    )
    assert json.loads(done.stdout)["steps"] == 3


def test_a_model_from_transformers_goes_through_the_command(tmp_path, capfd):
    pytest.importorskip("transformers")
    (tmp_path / "tiny_bert.py").write_text(
        "import torch\n"
        "from transformers import BertConfig, BertForSequenceClassification\n"
        "def build():\n"
        "    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,\n"
        "                        intermediate_size=32, max_position_embeddings=8)\n"
        "    return BertForSequenceClassification(config)\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 40\n"
        "    def __getitem__(self, i):\n"
        "        return {'input_ids': torch.arange(8) + i % 40, 'labels': torch.tensor(i % 2)}\n"
    )
    (tmp_path / "cfg.yaml").write_text("model: {target: 'tiny_bert:build'}\ndata: {target: 'tiny_bert:Data'}\n")
    assert train_here(tmp_path, "--model", "cfg.yaml", "--steps", "3", "--json") == 0
    assert json.loads(capfd.readouterr().out)["final_loss"] > 0
