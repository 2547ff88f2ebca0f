"""A flag beats the profile, the profile the config, the config the default; and every value knows its source."""

from __future__ import annotations

import pytest

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Hardware, Loader, Profile
from gpudoc.profile.model import Settings as ProfileSettings
from gpudoc.train.settings import Surroundings, choose_fsdp, parse_flags, parse_limit, resolve
from gpudoc.workload.config import Config, Fsdp


def config(**train):
    return Config.model_validate({"model": {"target": "m:build"}, "data": {"target": "m:Data"}, "train": train})


def profile(**changes):
    loader = Loader(num_workers=3, pin_memory=True)
    settings = ProfileSettings(**{"precision": "bf16", "micro_batch": 96, "loader": loader, **changes})
    return Profile(hardware=Hardware(device="cuda"), settings=settings)


def around(**changes):
    return Surroundings(**{"num_samples": 10_000, "world": 1, "device_type": "cuda", "num_cpus": 8, **changes})


def test_each_value_comes_from_the_strongest_place_that_gives_it():
    flags = parse_flags({"steps": 7, "num_workers": None}, ["log_every=3"])
    found = resolve(flags, config(log_every=5, eval_every=50, precision="fp32"), profile(), around())
    assert (found.log_every, found.source("log_every")) == (3, "flag")
    assert (found.steps, found.source("steps")) == (7, "flag")
    assert (found.precision, found.source("precision")) == ("bf16", "profile")
    assert (found.num_workers, found.source("num_workers")) == (3, "profile")
    assert (found.eval_every, found.source("eval_every")) == (50, "config")
    assert (found.keep, found.source("keep")) == (2, "default")


def test_the_global_batch_never_comes_from_a_profile_and_grows_only_within_bounds():
    assert resolve({}, config(global_batch=40), profile(), around()).global_batch == 40
    grown = resolve({}, config(), profile(), around())
    assert (grown.global_batch, grown.micro_batch, grown.accumulation) == (96, 96, 1)
    assert resolve({}, config(), profile(micro_batch=8), around()).accumulation == 4
    assert resolve({}, config(), profile(micro_batch=4000), around()).global_batch == 200


def test_the_micro_batch_is_an_upper_bound_and_the_last_one_smaller():
    found = resolve({"micro_batch": 15, "global_batch": 40}, config(), None, around())
    assert (found.micro_batch, found.accumulation) == (15, 3)
    found = resolve({"accumulation": 3, "global_batch": 40}, config(), None, around())
    assert (found.micro_batch, found.accumulation) == (14, 3)
    found = resolve({"accumulation": 3, "micro_batch": 10}, config(), None, around(world=2))
    assert found.global_batch == 60


def test_all_three_inconsistent_is_a_mistake():
    with pytest.raises(GpudocError, match="needs accumulation 4, not 2"):
        resolve({"accumulation": 2, "micro_batch": 10, "global_batch": 40}, config(), None, around())


def test_a_flag_that_changes_memory_voids_the_profiles_batch_and_says_so():
    found = resolve({"precision": "fp32"}, config(), profile(), around())
    assert found.micro_batch == 32
    assert "precision" in found.notes[0]
    assert resolve({"precision": "bf16"}, config(), profile(), around()).micro_batch == 96


def test_every_lever_comes_from_the_profile_and_a_flag_beats_it():
    levers = {"compile": True, "compile_mode": "blocks", "foreach": True, "matmul_precision": "high"}
    found = resolve({}, config(), profile(**levers, cudnn_benchmark=True), around())
    assert {name: getattr(found, name) for name in levers} == levers
    assert (found.cudnn_benchmark, found.source("compile_mode")) == (True, "profile")
    flags = parse_flags({}, ["compile_mode=dynamic", "matmul_precision=default"])
    found = resolve(flags, config(), profile(**levers), around())
    assert (found.compile_mode, found.matmul_precision, found.micro_batch) == ("dynamic", "default", 32)
    assert "compile_mode differ" in found.notes[0]


def test_who_types_fp32_gets_no_rounded_products_from_a_profile():
    assert resolve({"precision": "fp32"}, config(), profile(matmul_precision="high"), around()).matmul_precision == (
        "default"
    )
    assert resolve({}, config(), profile(matmul_precision="high"), around()).matmul_precision == "high"


@pytest.mark.parametrize("text", ["compile_mode=twice", "matmul_precision=low", "allocator=own"])
def test_a_word_that_a_setting_does_not_take_is_a_mistake_that_names_those_it_does(text):
    with pytest.raises(GpudocError, match="no such") as told:
        parse_flags({}, [text])
    assert told.value.hint.startswith("one of ")


def test_a_way_to_compile_without_compiling_is_a_mistake():
    with pytest.raises(GpudocError, match="has no effect without compile"):
        resolve(parse_flags({}, ["compile_mode=blocks"]), config(), None, around())


def test_epochs_count_whole_passes_and_steps_beat_them():
    assert resolve({"epochs": 2}, config(steps=5), None, around(num_samples=100)).steps == 8
    assert resolve({"epochs": 2, "steps": 3}, config(), None, around()).steps == 3
    assert resolve({}, config(epochs=3), None, around(num_samples=100)).steps == 12


def test_workers_of_a_profile_stay_within_the_cpus_and_pinning_needs_a_gpu():
    found = resolve({}, config(), profile(), around(num_cpus=2, device_type="cpu"))
    assert (found.num_workers, found.pin_memory) == (2, False)
    assert resolve({"num_workers": 9}, config(), None, around(num_cpus=2)).num_workers == 9


def test_rows_name_every_setting_once():
    rows = resolve({}, config(), None, around()).rows()
    assert len({key for key, _, _ in rows}) == len(rows) > 20


def test_sizes_of_memory_limits():
    assert parse_limit("2GiB") == 2 << 30
    assert parse_limit(None) is None


def test_how_a_model_is_spread_is_said_by_flags_else_by_the_config():
    given = config(fsdp={"reshard": "never", "prefetch": 2})
    flags = parse_flags({}, ["fsdp_prefetch=0", "fsdp_offload=yes"])
    assert choose_fsdp(flags, given) == Fsdp(reshard="never", prefetch=0, offload=True)
    found = resolve(flags, given, None, around())
    sources = {key: (value, source) for key, value, source in found.rows() if key.startswith("fsdp_")}
    assert sources == {
        "fsdp_reshard": ("never", "config"),
        "fsdp_prefetch": (0, "flag"),
        "fsdp_reduce": ("fp32", "default"),
        "fsdp_offload": (True, "flag"),
    }


@pytest.mark.parametrize("text", ["fsdp_reshard=off", "fsdp_reduce=bf16", "fsdp_prefetch=-1"])
def test_how_a_model_cannot_be_spread(text):
    with pytest.raises(GpudocError) as raised:
        parse_flags({}, [text])
    assert text in raised.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("off", False), ("1", True), ("selective", "selective"), ("blocks:3", "blocks:3")],
)
def test_activation_checkpointing_is_a_switch_or_a_policy(text, value):
    found = resolve(parse_flags({}, [f"activation_checkpointing={text}"]), config(), None, around())
    assert (found.activation_checkpointing, found.source("activation_checkpointing")) == (value, "flag")


def test_what_is_no_policy_names_those_there_are():
    with pytest.raises(GpudocError, match="blocks:0: not true, false, selective or blocks:K") as refused:
        parse_flags({}, ["activation_checkpointing=blocks:0"])
    assert refused.value.hint == "--set activation_checkpointing=selective"


def test_a_policy_of_the_config_stands_against_a_profile_whose_batch_it_voids():
    asked = config(activation_checkpointing="blocks:2")
    found = resolve({}, asked, profile(activation_checkpointing=True), around())
    assert (found.activation_checkpointing, found.source("activation_checkpointing")) == ("blocks:2", "config")
    assert found.may_checkpoint_activations
    assert found.micro_batch == 32
    (note,) = found.notes
    assert "differ from the profile by the config or a flag, so its micro batch of 96 is not used" in note
    left_open = resolve({}, config(), profile(activation_checkpointing="selective"), around())
    assert (left_open.activation_checkpointing, left_open.micro_batch) == ("selective", 96)
    for text in ("off", False):
        forbidden = resolve({}, config(activation_checkpointing=text), profile(), around())
        assert not forbidden.activation_checkpointing
        assert not forbidden.may_checkpoint_activations
        assert forbidden.notes == ()
