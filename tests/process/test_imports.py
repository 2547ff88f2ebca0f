import gc

import pytest

from gpudoc.process.imports import uncollected


@pytest.mark.parametrize("was_on", [True, False])
def test_nothing_is_collected_inside_and_afterwards_it_is_as_before(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
            with uncollected():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() is was_on
        with pytest.raises(ModuleNotFoundError), uncollected():
            import no_such_module  # noqa: F401
        assert gc.isenabled() is was_on
    finally:
        gc.enable()
