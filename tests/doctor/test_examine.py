from __future__ import annotations

import json

import pytest

from gpudoc.doctor import document
from gpudoc.doctor.examine import Request, examine, examine_machine, examine_text
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Driver, Gpu, Machine, TorchBuild

MACHINE = Machine(
    driver=Driver(module_version="550.54.15"), gpus=(Gpu(index=0, name="NVIDIA L4"),), torch=TorchBuild(version="2.6.0")
)


def saved(tmp_path, name, machine=MACHINE):
    path = tmp_path / name
    path.write_text(json.dumps(document.dump(examine_machine(machine))), encoding="utf-8")
    return str(path)


def test_a_log_and_a_report_of_the_environment_are_one_machine(tmp_path):
    env, log = tmp_path / "env.txt", tmp_path / "train.log"
    env.write_text(
        "PyTorch version: 2.6.0+cpu\nGPU models and configuration: GPU 0: NVIDIA L4\nNvidia driver version: 550.54.15"
    )
    log.write_text("AssertionError: Torch not compiled with CUDA enabled")
    report = examine(Request(sources=(str(env), str(log))))
    assert report.findings[0].id == "cpu_only_torch"
    assert {o.origin.split(" line")[0] for o in report.findings[0].evidence} == {"env.txt", "train.log"}
    assert report.seconds["total"] > 0


def test_one_saved_report_is_judged_anew_and_several_are_compared(tmp_path):
    one = saved(tmp_path, "a.json")
    assert examine(Request(sources=(one,))).source == "machine"
    import dataclasses

    other = saved(tmp_path, "b.json", dataclasses.replace(MACHINE, torch=TorchBuild(version="2.5.0")))
    report = examine(Request(sources=(one, other)))
    assert report.source == "fleet"
    assert report.findings[0].title.startswith("torch differs")


def test_a_text_beside_a_report_and_a_newer_schema_are_refused(tmp_path):
    log, newer = tmp_path / "x.log", tmp_path / "n.json"
    log.write_text("step 1 loss 2.0")
    newer.write_text('{"schema": "gpudoc.doctor.v9"}')
    with pytest.raises(GpudocError, match="is a text and"):
        examine(Request(sources=(str(log), saved(tmp_path, "a.json"))))
    with pytest.raises(GpudocError, match="v9"):
        examine(Request(sources=(str(newer),)))


def test_an_ignored_cause_is_not_found_and_a_misspelt_one_is_told_its_neighbour():
    text = [("x", b"Attempting to unscale FP16 gradients")]
    assert examine_text(text).findings
    left = examine_text(text, Request(ignore=("amp_fp16_params_with_scaler",)))
    assert "amp_fp16_params_with_scaler" not in [f.id for f in left.findings]
    with pytest.raises(GpudocError) as refused:
        examine(Request(ignore=("driver_to_old",)))
    assert "driver_too_old" in refused.value.hint
