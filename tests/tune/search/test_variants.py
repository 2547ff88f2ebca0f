import pathlib

import pytest

from gpudoc.profile.model import Hardware, Levers, WorkloadKey
from gpudoc.tune.model.losses import BOUNDS
from gpudoc.tune.search.variants import LEVERS, Abilities, abilities_of, ways_out
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import Inspection, TorchCard
from gpudoc.workload.config import Train

FREE = frozenset({"matmul_precision", "cudnn_benchmark"})
AMPERE = {"device": "cuda:0", "capability": (8, 0), "native_bf16": True}


def abilities(**changes):
    plain = {"device": "cpu", "native_bf16": False, "has_images": False, "precision": "auto"}
    return Abilities(**{**plain, "budget_s": 60.0, "can_compile": True, "free_switches": FREE, **changes})


def names(goal="throughput", now=Variant(), **changes):  # noqa: B008
    here = abilities(**changes)
    return [lever.name for lever in LEVERS if lever.is_worth_a_trial(here, goal, now)]


def test_bf16_only_where_it_is_native_and_fp16_only_on_a_gpu():
    assert "bf16" in names(native_bf16=True)
    assert "bf16" not in names()
    assert names(device="cuda:0") == ["fp16 with loss scaling", "expandable segments"]
    assert "fp16 with loss scaling" not in names(**AMPERE)


def test_products_are_rounded_where_the_hardware_can_and_nobody_said_otherwise():
    tf32 = "TF32 in matrix products"
    assert names(**AMPERE)[:2] == [tf32, "bf16"]
    assert tf32 not in names(**{**AMPERE, "capability": (7, 5)})
    assert tf32 not in names(**{**AMPERE, "capability": None})
    assert tf32 not in names(native_bf16=True)
    for changes in ({"precision": "fp32"}, {"free_switches": frozenset()}):
        assert tf32 not in names(**{**AMPERE, **changes})


def test_a_precision_in_the_config_is_not_questioned():
    assert names(precision="fp32", native_bf16=True) == ["the exact allocator"]


def test_the_exact_allocator_is_given_for_the_largest_batch_and_tried_for_speed():
    assert names("largest") == []
    assert names("throughput") == ["the exact allocator"]


def test_threads_are_let_sleep_where_they_spin_on_a_cpu_for_speed():
    asleep = "threads that sleep while they wait"
    assert names(threads_spin=True)[0] == asleep
    assert asleep not in names()
    assert asleep not in names(goal="largest", threads_spin=True)
    assert asleep not in names(now=Variant(wait_policy="passive"), threads_spin=True)
    assert asleep not in names(threads_spin=True, **AMPERE)


def test_images_get_channels_last_and_convolutions_of_one_shape_cudnns_benchmark():
    assert "channels_last" in names(has_images=True)
    benchmark = "cudnn.benchmark"
    assert benchmark in names(**AMPERE, has_convolutions=True)
    assert benchmark not in names(has_convolutions=True)
    for changes in ({"sizes_differ": True}, {"is_deterministic": True}, {"free_switches": frozenset()}):
        assert benchmark not in names(**AMPERE, has_convolutions=True, **changes)


def test_other_forms_of_the_optimizer_are_tried_where_there_are_any_and_speed_is_the_goal():
    without, foreach = "the optimizer without its fused kernel", "the optimizer with foreach kernels"
    assert without in names(can_fuse=True)
    assert without not in names()
    assert without not in names("largest", can_fuse=True)
    assert foreach in names(can_foreach=True)
    assert foreach not in names(**AMPERE, can_foreach=True)


def compiling(**changes):
    return [name for name in names(**{"budget_s": 600.0, **changes}) if name.startswith("torch.compile")]


def test_compiling_needs_a_compiler_and_time():
    assert compiling() == ["torch.compile"]
    assert compiling(can_compile=False) == []
    assert compiling(budget_s=60.0) == []


def test_each_way_to_compile_is_tried_where_it_can_work():
    assert compiling(has_blocks=True) == ["torch.compile", "torch.compile by block"]
    assert compiling(sizes_differ=True) == ["torch.compile", "torch.compile, dynamic shapes"]
    graphs = "torch.compile, reduce-overhead"
    assert graphs in compiling(**AMPERE)
    for changes in ({"ranks": 2}, {"sizes_differ": True}, {"capability": (6, 1)}):
        assert graphs not in compiling(**{**AMPERE, **changes})


def test_what_is_there_already_is_no_change():
    now = Variant(precision="bf16", allocator="exact")
    assert "bf16" not in names(now=now, native_bf16=True)
    assert "the exact allocator" not in names(now=now)
    assert compiling(now=Variant(compile=True)) == []


@pytest.mark.parametrize("lever", LEVERS, ids=lambda lever: lever.name)
def test_every_row_changes_fields_of_a_profile_to_values_that_it_takes(lever):
    changed = Levers.model_validate(dict(lever.changes))
    assert changed != Levers()
    assert lever.tolerance in BOUNDS.values()


def test_the_handbook_has_every_row_with_its_bound():
    text = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "tune.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(): cells for line in text.splitlines() if len(cells := line.split("|")) == 7}
    for lever in LEVERS:
        assert rows[lever.name][4].strip() == f"{100 * lever.tolerance:g} %"
        assert bool(rows[lever.name][5].strip()) is bool(lever.to_show), lever.name


def test_what_an_inspection_found_and_the_config_allows_becomes_abilities():
    told = Inspection(
        num_samples=10,
        num_threads=1,
        baseline_bytes=1,
        parameter_bytes=1,
        workload=WorkloadKey(config="cfg", model="abc"),
        hardware=Hardware(device="cuda"),
        torch="2.13.0",
        can_recompute=True,
        has_policies=True,
        can_fuse=True,
        has_images=True,
        has_bf16=True,
        matmul_precision="high",
        card=TorchCard(name="a card", capability=(8, 6), free_bytes=1, count=1),
    )
    train = Train(precision="bf16", activation_checkpointing="off", deterministic=True)
    found = abilities_of(told, train, device="cuda:0", budget_s=9.0, ranks=2, can_compile=False)
    assert (found.precision, found.can_recompute, found.is_deterministic) == ("bf16", False, True)
    assert not found.has_policies
    for asked, is_open in (("auto", True), ("selective", False), (True, False)):
        train = Train(activation_checkpointing=asked)
        found = abilities_of(told, train, device="cuda:0", budget_s=9.0, ranks=2, can_compile=False)
        assert (found.can_recompute, found.has_policies) == (is_open, is_open)
    found = abilities_of(told, Train(precision="bf16"), device="cuda:0", budget_s=9.0, ranks=2, can_compile=False)
    assert (found.capability, found.ranks, found.can_fuse) == ((8, 6), 2, True)
    # the user's code has set TF32 itself
    assert found.free_switches == {"cudnn_benchmark"}


def ways(now=Variant(), **changes):  # noqa: B008
    return [name for name, _ in ways_out(abilities(**changes), now)]


def test_ways_out_of_too_little_memory_go_from_cheap_to_dear():
    assert ways(can_recompute=True) == [
        "the allocator 'exact'",
        "activation checkpointing",
        "bf16",
        "activation checkpointing and bf16",
    ]
    assert ways(device="cuda:0") == ["the allocator 'expandable'", "fp16"]
    assert ways(device="cuda:0", native_bf16=True)[-1] == "bf16"


def test_the_part_that_is_predicted_to_be_enough_comes_before_every_block():
    found = ways_out(abilities(can_recompute=True), Variant(), "blocks:3")
    assert [name for name, _ in found][1:3] == ["activation checkpointing of 3 blocks", "activation checkpointing"]
    assert found[1][1] == {"allocator": "exact", "activation_checkpointing": "blocks:3"}
    assert ways_out(abilities(can_recompute=True), Variant(), True) == ways_out(
        abilities(can_recompute=True), Variant()
    )


def test_what_the_config_or_the_variant_fixes_is_no_way_out():
    assert ways(Variant(allocator="exact"), precision="fp32") == []
    assert ways(Variant(allocator="exact", precision="bf16"), can_recompute=True) == ["activation checkpointing"]


def test_a_narrower_state_is_tried_where_torchao_is_and_is_the_last_way_out():
    small = "8-bit optimizer state"
    assert small in names(can_shrink=True, budget_s=600.0)
    assert small not in names(budget_s=600.0)
    assert small not in names(can_shrink=True)
    assert small not in names(can_shrink=True, budget_s=600.0, can_compile=False)
    found = ways_out(abilities(can_shrink=True, can_recompute=True, precision="fp32"), Variant())
    assert [name for name, _ in found][1:] == [
        "activation checkpointing",
        small,
        f"activation checkpointing and {small}",
    ]
    assert dict(found[-1][1]) == {"allocator": "exact", "activation_checkpointing": True, "optimizer_state": "8bit"}
    assert ways(Variant(allocator="exact"), precision="fp32", can_shrink=True) == [small]
    assert ways(Variant(allocator="exact"), precision="fp32", can_shrink=True, can_compile=False) == []
