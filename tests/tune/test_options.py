from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.tune.options import Options


def typed(**changes):
    plain = {"source": "quickstart", "device": "cpu", "goal": "largest", "only": "batch, speed", "budget": "2m"}
    return Options.of(**{**plain, "memory_limit": "1GiB", **changes})


def test_what_was_typed_is_read():
    options = typed().also(max_batch=9, out=Path("p.yaml"), fresh=True)
    options.check()
    assert options.parts == {"batch", "speed"}
    assert (options.budget_s, options.memory_limit_bytes, options.max_batch) == (120.0, 1 << 30, 9)
    assert typed(memory_limit="").memory_limit_bytes is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"budget": "soon"}, "--budget: not a duration"),
        ({"budget": "2s"}, "too short"),
        ({"memory_limit": "banana"}, "--memory-limit: not a size"),
        ({"goal": "luck"}, "no such goal: 'luck'"),
        ({"only": "batch,luck"}, "no such part: luck"),
        ({"only": ""}, "--only"),
    ],
)
def test_what_makes_no_sense_is_said_with_the_option(changes, says):
    with pytest.raises(GpudocError) as raised:
        typed(**changes).check()
    assert says in raised.value.message
    assert raised.value.exit_code == 2


def test_a_batch_below_one_is_refused():
    with pytest.raises(GpudocError, match="at least 1"):
        typed().also(max_batch=0, out=None, fresh=False).check()
