"""An error of the user's code is said with the user's file and line, and is never a fault of gpudoc."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import gpudoc
from gpudoc.errors import GpudocError
from gpudoc.train import blame
from gpudoc.train.data.order import Order
from tests.train.support import summary, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")
# a sample of the first epoch's last step
LATE = Order(num_samples=96, global_batch=12, micro_batch=12, seed=0).indices(0, 95, 96)[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_raises_names_file_line_and_sample_and_keeps_the_state(tmp_path, capsys, workers):
    write_workload(tmp_path, data={"raise_at": LATE}, log_every=1)
    assert train_here(tmp_path, *LINE, "--num-workers", workers) == 1
    told = capsys.readouterr().err
    assert f"KeyError: 'sample {LATE} is broken'" in told
    assert "tiny_workload.py:" in told
    if sys.version_info >= (3, 11):
        assert f"while reading sample {LATE}: KeyError" in told
    assert "--resume runs/cfg" in told
    assert "Traceback" not in told
    found = summary(tmp_path / "runs/cfg")
    assert found["status"] == "failed"
    assert (tmp_path / f"runs/cfg/checkpoints/step-{found['steps']}").is_dir()


def test_samples_of_different_sizes_ask_for_a_collate(tmp_path, capsys):
    write_workload(tmp_path)
    module = tmp_path / "tiny_workload.py"
    module.write_text(module.read_text().replace("return x, self", "return x[: 1 + index % 8], self"))
    assert train_here(tmp_path, *LINE) == 2
    told = capsys.readouterr().err
    assert "equal size" in told
    assert "data.collate" in told


def test_a_model_that_does_not_take_the_batch_is_said_with_shapes_and_place(tmp_path, capsys):
    write_workload(tmp_path, model={"width": 5})
    assert train_here(tmp_path, *LINE) == 2
    told = capsys.readouterr().err
    assert "float32[12, 8]" in told
    assert "tiny_workload" in told or "cannot be multiplied" in told


def test_a_worker_that_dies_is_said_with_the_way_to_see_more(tmp_path, capsys):
    write_workload(tmp_path, data={"die_at": LATE}, log_every=1)
    assert train_here(tmp_path, *LINE, "--num-workers", 1) == 1
    told = capsys.readouterr().err
    assert "a loader worker died" in told
    assert "--num-workers 0" in told
    assert "--resume runs/cfg" in told


def test_nan_from_the_first_step_ends_with_advice(tmp_path, capsys):
    write_workload(tmp_path, data={"bad_from": 0}, epochs=9)
    assert train_here(tmp_path, *LINE) == 1
    told = capsys.readouterr().err
    assert "not finite from the first step on" in told
    assert "lr" in told


def test_one_bad_sample_is_skipped_counted_and_not_hidden(tmp_path, capsys):
    write_workload(tmp_path, data={"bad_from": 95}, log_every=8)
    assert train_here(tmp_path, *LINE) == 0
    found = summary(tmp_path / "runs/cfg")
    assert found["num_skipped"] == 1
    assert found["final_loss"] is not None
    assert "1 step skipped" in capsys.readouterr().out


def test_what_is_already_explained_stays():
    problem = GpudocError("mine")
    assert blame.in_data(problem, (1,)) is problem
    assert blame.in_model(problem, None, True) is problem


def test_an_error_of_the_model_says_how_to_see_all_of_it():
    told = blame.in_model(
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)"), torch.zeros(4, 10), True
    )
    assert isinstance(told, GpudocError)
    assert "(4x20 and 30x2)" in told.message
    assert told.hint == "--verbose shows the whole traceback"


ASSERTED = "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs.nvidia.com\n"


def test_the_fault_of_a_kernel_is_the_users_and_ends_the_process_at_once(monkeypatch):
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    raw = RuntimeError(ASSERTED)
    told = blame.in_kernel(raw, 7)
    assert isinstance(told, GpudocError)
    assert (told.exit_code, told.is_abrupt, told.__cause__) == (1, True, raw)
    assert told.message == "a kernel failed on the GPU by step 7: CUDA error: device-side assert triggered"
    assert "CUDA_LAUNCH_BLOCKING=1" in told.hint
    wrapped = blame.in_model(raw, torch.zeros(2), True)
    wrapped.__cause__ = raw
    assert blame.in_kernel(wrapped, 7).message == told.message
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "CUDA_LAUNCH_BLOCKING" not in blame.in_kernel(raw, 7).hint


def test_other_errors_are_no_kernels_fault():
    # the last line stands below each error of CUDA's
    advice = "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    memory = RuntimeError(f"CUDA error: uncorrectable ECC error encountered{advice}")
    assert blame.in_kernel(memory, 1) is memory
    for problem in (RuntimeError("CUDA out of memory"), ValueError("device-side assert"), GpudocError("x")):
        assert blame.in_kernel(problem, 1) is problem


@pytest.mark.parametrize(
    "place",
    [
        "/usr/local/lib/python3.12/dist-packages/torch/nn/modules/module.py",
        "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
        subprocess.__file__,
        blame.__file__,
        "<string>",
    ],
)
def test_a_frame_of_a_package_of_python_or_of_gpudoc_is_never_named_as_the_users(place):
    assert blame.last_own([("/home/me/train.py", 3), (place, 7)]) == "/home/me/train.py:3"


def test_a_folder_beside_gpudoc_whose_name_begins_alike_is_the_users():
    beside = f"{gpudoc.__path__[0]}_runs/train.py"
    assert blame.last_own([(beside, 3)]) == f"{beside}:3"
