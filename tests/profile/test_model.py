import json

import pytest
from pydantic import ValidationError

from gpudoc.profile.model import Hardware, Loader, Profile, Settings, WorkloadKey

MINIMAL = {
    "schema": "gpudoc.profile.v1",
    "hardware": {"device": "cpu"},
    "settings": {"precision": "fp32", "micro_batch": 4},
}


def test_a_profile_survives_the_way_to_text_and_back():
    profile = Profile(
        hardware=Hardware(device="cuda", name="NVIDIA H100", capability=(9, 0), memory_bytes=80 << 30),
        workload=WorkloadKey(config="quickstart", model="abc", global_batch=64),
        settings=Settings(precision="bf16", micro_batch=64),
        why=("measured",),
    )
    document = profile.document()
    assert document["schema"] == "gpudoc.profile.v1"
    assert "driver" not in document["hardware"]
    assert Profile.model_validate_json(json.dumps(document)) == profile


def test_a_profile_from_before_the_newer_levers_has_them_at_what_training_did_then():
    old = {"precision": "bf16", "micro_batch": 4, "compile": True, "fused": False, "channels_last": True}
    found = Profile.model_validate({**MINIMAL, "settings": old}).settings
    assert (found.compile_mode, found.foreach, found.matmul_precision, found.cudnn_benchmark) == (
        "whole",
        False,
        "default",
        False,
    )


def test_a_machine_is_named_with_its_instruction_set():
    assert Hardware(device="cpu", name="AMD EPYC", instructions="AVX512").title == "AMD EPYC, AVX512"
    assert Hardware(device="cuda", name="NVIDIA H100").title == "NVIDIA H100"
    assert Hardware(device="cpu").title == "cpu"


def test_a_preset_is_what_has_no_workload():
    assert Profile.model_validate(MINIMAL).is_preset
    assert not Profile.model_validate({**MINIMAL, "workload": {"config": "a", "model": "b"}}).is_preset


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "gpudoc.profile.v2"},
        {"settings": {"precision": "fp8", "micro_batch": 4}},
        {"settings": {"precision": "fp32", "micro_batch": 0}},
        {"settings": {"micro_batch": 4}},
        {"settings": {"precision": "fp32", "micro_batch": 4, "compile_mode": "twice"}},
        {"hardware": {"device": "abacus"}},
        {"host": "node17"},
    ],
)
def test_what_is_no_profile_is_refused(change):
    with pytest.raises(ValidationError):
        Profile.model_validate({**MINIMAL, **change})


@pytest.mark.parametrize("loader", [{"num_workers": 100_000}, {"num_workers": 2, "prefetch_factor": 10**9}])
def test_more_workers_than_any_machine_has_are_refused(loader):
    with pytest.raises(ValidationError, match="less than or equal to 1024"):
        Loader.model_validate(loader)
