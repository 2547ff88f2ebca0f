"""From a request to a job: what is decided, what is said, and what is refused."""

from __future__ import annotations

import json
import os

import pytest
import torch
import yaml
from safetensors.torch import load_file

from gpudoc.process import openmp
from gpudoc.process.openmp import WAITING, OpenMp
from gpudoc.train.loop.trace import Tracer
from gpudoc.train.ranks.protocol import Alone
from gpudoc.train.request import TrainRequest
from gpudoc.train.settings import TrainSettings
from gpudoc.train.start import assemble, build
from gpudoc.train.state.restore import load
from gpudoc.train.stop import Stop
from gpudoc.units import format_bytes
from tests.train.support import forget_limit, metrics, summary, train, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--no-preflight")


def test_a_batch_that_grew_by_itself_scales_the_learning_rate_and_says_so(tmp_path, capsys):
    """Micro batch 64 by a flag lets the automatic global batch grow from 32 to a fiftieth of 3200 samples."""
    write_workload(tmp_path, data={"count": 3200}, global_batch="auto", log_every=1)
    assert train_here(tmp_path, *LINE, "--profile", "off", "--batch-size", 64, "--steps", 1) == 0
    told = capsys.readouterr().err
    assert "global batch 32 -> 64 automatically, so the learning rate goes 0.01 -> 0.0141421 (sqrt rule)" in told
    assert metrics(tmp_path / "runs/cfg")[0]["lr"] == pytest.approx(0.01 * 2**0.5)


def test_a_learning_rate_that_was_typed_stays(tmp_path):
    write_workload(tmp_path, data={"count": 3200}, global_batch="auto", log_every=1)
    line = ("--profile", "off", "--batch-size", 64, "--steps", 1, "--set", "lr=0.5")
    assert train_here(tmp_path, *LINE, *line) == 0
    assert metrics(tmp_path / "runs/cfg")[0]["lr"] == 0.5


def test_the_shipped_preset_is_used_when_nothing_was_tuned(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GPUDOC_PROFILE_DIR", str(tmp_path / "none"))
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--profile", "auto", "--steps", 1) == 0
    assert "preset cpu, which is only estimated" in capsys.readouterr().err
    assert summary(tmp_path / "runs/cfg")["settings"]["num_workers"]["from"] == "profile"


def test_a_profile_for_another_model_is_refused_with_the_difference(tmp_path, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 1) == 0
    profile = tmp_path / "runs/cfg/profile.yaml"
    write_workload(tmp_path, model={"hidden": 24})
    assert train_here(tmp_path, *LINE, "--profile", profile, "--steps", 1) == 2
    told = capsys.readouterr().err
    assert "made for something else: it was made for a different model" in told
    assert "gpudoc tune --model" in told


@pytest.mark.slow
def test_an_environment_of_the_settings_starts_the_process_anew(tmp_path, monkeypatch):
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    write_workload(tmp_path)
    changes = ("--set", "allocator=exact", "--set", "wait_policy=passive")
    done = train(tmp_path, *LINE, "--profile", "off", "--steps", 1, *changes)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("starting again with the environment") == 1
    written = yaml.safe_load((tmp_path / "runs/cfg/profile.yaml").read_text())
    assert (written["settings"]["allocator"], written["settings"]["wait_policy"]) == ("exact", "passive")


def test_threads_that_are_to_sleep_begin_the_process_anew_once(monkeypatch):
    began = []
    monkeypatch.setattr(
        openmp, "own_openmp", lambda: OpenMp("libgomp", {n: v for n, v in os.environ.items() if n in WAITING})
    )
    monkeypatch.setattr(build.os, "execve", lambda *call: began.append(call[2]))
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)

    def start(device="cpu", may_restart=True, **changes):
        request = TrainRequest(model="cfg.yaml", may_restart=may_restart)
        return [
            said.text for said in build._start_again(request, TrainSettings(**changes), torch.device(device), Alone())
        ]

    assert start() == start("cuda", wait_policy="passive") == start(may_restart=False, wait_policy="passive") == []
    (said,) = start(wait_policy="passive")
    assert said == "starting again with the environment of threads that sleep while they wait: OMP_WAIT_POLICY=passive"
    assert [environment["OMP_WAIT_POLICY"] for environment in began] == ["passive"]
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert start(wait_policy="passive") == []
    assert len(began) == 1


@pytest.mark.parametrize("fused", [True, False])
def test_a_setting_keeps_the_optimizer_from_its_fused_kernel(tmp_path, fused):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 1, "--set", f"fused={fused}") == 0
    groups = load(tmp_path / "runs/cfg/checkpoints/step-1").optimizer["param_groups"]
    assert {bool(group["fused"]) for group in groups} == {fused}
    written = yaml.safe_load((tmp_path / "runs/cfg/profile.yaml").read_text())
    assert written["settings"]["fused"] is fused


def test_a_changed_data_set_is_refused_on_resume(tmp_path, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 2) == 0
    write_workload(tmp_path, data={"count": 60})
    line = ("--profile", "off", "--steps", 4, "--resume", "runs/cfg")
    assert train_here(tmp_path, *LINE, *line) == 2
    assert "data was" in capsys.readouterr().err


def test_a_data_set_that_changed_behind_the_same_config_is_refused(tmp_path, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 2) == 0
    state = tmp_path / "runs/cfg/checkpoints/step-2"
    text = (state / "state.json").read_text().replace('"num_samples": 96', '"num_samples": 97')
    (state / "state.json").write_text(text)
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 4, "--resume", "runs/cfg") == 2
    assert "state.json: its sha256 differs from the manifest" in capsys.readouterr().err


@pytest.mark.parametrize(("rank", "steps"), [(0, 3), (1, 0)])
def test_one_rank_writes_the_trace(tmp_path, monkeypatch, rank, steps):
    class One(Alone):
        pass

    One.rank = rank
    config = write_workload(tmp_path)
    request = TrainRequest(model=str(config), profile="off", device="cpu", run_dir=tmp_path / "run", trace_steps=3)
    built, asked = [], []
    monkeypatch.setattr(
        assemble, "Tracer", lambda folder, steps, watch: asked.append(steps) or Tracer(folder, steps, watch)
    )

    def building():
        built.extend((yield from build.build(request, Stop(), One())))

    assert list(building())
    job, lock = built
    assert asked == [steps]
    job.sinks.close()
    lock.close()
    forget_limit()


@pytest.mark.standin
def test_determinism_on_a_gpu_is_real_or_names_the_operation_that_has_none(standin, tmp_path):
    """Attention's backward is deterministic only where torch may fail; cuBLAS must be told before it starts."""
    config = write_workload(tmp_path, deterministic=True)
    module = tmp_path / "tiny_workload.py"
    pooled = "nn.functional.adaptive_avg_pool2d(x.view(len(x), 1, 4, -1), (3, 3)).mean() + x"
    module.write_text(
        module.read_text().replace("        return x\n\ndef build_model", f"        return {pooled}\n\ndef build_model")
    )
    line = ("train", "--model", str(config), "--profile", "off", "--device", "cuda", "--steps", "2")
    done = standin().gpudoc(*line)
    assert done.returncode == 2
    assert "adaptive_avg_pool2d_backward_cuda does not have a deterministic implementation" in done.stderr
    assert "--set deterministic=false" in done.stderr


@pytest.mark.standin
def test_a_memory_limit_on_a_gpu_holds_and_says_what_comes_on_top(standin, tmp_path):
    config = write_workload(tmp_path, model={"hidden": 4_000_000})
    line = ("train", "--model", str(config), "--profile", "off", "--device", "cuda", "--memory-limit", "100MiB")
    done = standin().gpudoc(*line)
    assert done.returncode == 1
    assert "memory limit 100 MiB for tensors; CUDA's context and NCCL's buffers are extra" in done.stderr
    assert "out of memory before the first step under --memory-limit 100 MiB; weights" in done.stderr


def test_a_run_starts_from_weights_that_exist_and_a_resume_does_not(tmp_path, capsys):
    path = write_workload(tmp_path)
    config = json.loads(path.read_text())
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 3) == 0
    learned = tmp_path / "runs/cfg/checkpoints/step-3/model.safetensors"
    config["model"] |= {"weights": str(learned), "frozen": ["*.bias"]}
    path.write_text(json.dumps(config))
    line = (*LINE, "--profile", "off", "--run-dir", "tuned")
    capsys.readouterr()
    assert train_here(tmp_path, *line, "--steps", 2) == 0
    assert f"tensors ({format_bytes(sum(value.nbytes for value in load_file(learned).values()))})" in (
        capsys.readouterr().err
    )
    first, last = load_file(learned), load_file(tmp_path / "tuned/checkpoints/step-2/model.safetensors")
    for name, value in first.items():
        # a frozen bias is what the file held; a weight has moved from there, two steps of 0.01 at the most
        assert value.equal(last[name]) if name.endswith("bias") else 0 < (value - last[name]).abs().max() < 0.03
    learned.write_bytes(b"gone")
    assert train_here(tmp_path, *line, "--steps", 4, "--resume", "tuned") == 0
    assert train_here(tmp_path, *line, "--steps", 4, "--run-dir", "anew") == 2
    assert "model.weights" in capsys.readouterr().err


@pytest.mark.parametrize(("schedule", "told"), [("cosine", True), ("constant", False)])
def test_another_number_of_steps_on_a_resume_says_what_it_does_to_the_schedule(tmp_path, capsys, schedule, told):
    write_workload(tmp_path, schedule={"name": schedule})
    # a run that stopped half way was saved under --steps 4
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 4) == 0
    capsys.readouterr()
    assert train_here(tmp_path, *LINE, "--profile", "off", "--steps", 8, "--resume", "runs/cfg") == 0
    said = "the cosine schedule of the learning rate now ends there, so in step 4 it continues at 50%"
    assert (said in capsys.readouterr().err) is told
