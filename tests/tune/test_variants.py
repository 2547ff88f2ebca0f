from gpudoc.tune.variants import Abilities, variants_to_try


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
