import gc

import pytest

from gpudoc.process.imports import uncollected


@pytest.mark.parametrize("was_on", [True, False])
def test_nothing_is_collected_inside_and_afterwards_it_is_as_before(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        with uncollected():
            made = [{"imported": 1}]
            assert not gc.isenabled()
            with uncollected():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() is was_on
        # frozen where it would be looked through again
        assert any(found is made for found in gc.get_objects()) is not was_on
        with pytest.raises(ModuleNotFoundError), uncollected():
            import no_such_module  # noqa: F401
        assert gc.isenabled() is was_on
    finally:
        gc.enable()
