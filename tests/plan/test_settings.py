import pytest

from gpudoc.plan import PlanSettings


def test_settings_are_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        PlanSettings("cuda")
    assert PlanSettings(precision="bf16") == PlanSettings(precision="bf16")
    assert hash(PlanSettings()) != hash(PlanSettings(fused=False))
