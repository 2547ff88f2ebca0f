import pytest

from gpudoc.plan import Settings


def test_settings_are_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        Settings("cuda")
    assert Settings(precision="bf16") == Settings(precision="bf16")
    assert hash(Settings()) != hash(Settings(fused=False))
