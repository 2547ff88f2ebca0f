from gpudoc.tune.search.variants import Abilities, variants_to_try, ways_out
from gpudoc.tune.trial.messages import Variant


def abilities(**changes):
    plain = {"device": "cpu", "native_bf16": False, "has_images": False, "precision": "auto"}
    return Abilities(**{**plain, "budget_s": 60.0, "can_compile": True, **changes})


def names(goal="throughput", **changes):
    return [name for name, _ in variants_to_try(abilities(**changes), goal)]


def test_bf16_only_where_it_is_native_and_fp16_only_on_a_gpu():
    assert "bf16" in names(native_bf16=True)
    assert "bf16" not in names()
    assert names(device="cuda:0") == ["fp16 with loss scaling", "expandable segments"]
    assert "fp16 with loss scaling" not in names(device="cuda:0", native_bf16=True)


def test_a_precision_in_the_config_is_not_questioned():
    assert names(precision="fp32", native_bf16=True) == ["the exact allocator"]


def test_the_exact_allocator_is_given_for_the_largest_batch_and_tried_for_speed():
    assert names("largest") == []
    assert names("throughput") == ["the exact allocator"]


def test_compile_needs_time_and_images_channels_last():
    assert names(budget_s=600.0)[-1] == "torch.compile"
    assert "torch.compile" not in names(budget_s=600.0, can_compile=False)
    assert "channels_last" in names(has_images=True)


def test_doing_without_the_fused_kernel_is_tried_where_there_is_one_and_speed_is_the_goal():
    assert "the optimizer without its fused kernel" in names(can_fuse=True)
    assert "the optimizer without its fused kernel" not in names()
    assert "the optimizer without its fused kernel" not in names("largest", can_fuse=True)


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


def test_what_the_config_or_the_variant_fixes_is_no_way_out():
    assert ways(Variant(allocator="exact"), precision="fp32") == []
    assert ways(Variant(allocator="exact", precision="bf16"), can_recompute=True) == ["activation checkpointing"]
