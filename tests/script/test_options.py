import pytest

from gpudoc.errors import GpudocError
from gpudoc.script.options import Typed, options_of

COMMAND = ("python3", "-c", "pass")


def test_everything_that_was_typed_arrives():
    found = options_of(
        COMMAND,
        Typed(budget="90s", goal="largest", only="loader, batch", allow="network", memory_limit="2GiB", max_batch=64),
    )
    assert found.command.words == COMMAND
    assert (found.budget_s, found.goal, found.max_batch, found.memory_limit_bytes) == (90, "largest", 64, 2 << 30)
    assert (found.parts, found.allow) == ({"loader", "batch"}, {"network"})
    assert not found.only_looks


def test_without_only_all_parts_are_searched_and_look_alone_looks():
    assert options_of(COMMAND, Typed()).parts == {"look", "loader", "batch"}
    assert options_of(COMMAND, Typed(only="look")).only_looks


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (Typed(goal="fast"), "no such goal"),
        (Typed(only="speed"), "--only: no such part: speed"),
        (Typed(allow="everything"), "--allow: no such part"),
        (Typed(budget="3s"), "too short"),
        (Typed(budget="soon"), "--budget: not a duration"),
        (Typed(memory_limit="big"), "--memory-limit: not a size"),
        (Typed(max_batch=0), "--max-batch 0"),
        (Typed(foreign=("--gpus",)), "--gpus goes with --model"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_type(typed, says):
    with pytest.raises(GpudocError, match=says) as told:
        options_of(COMMAND, typed)
    assert told.value.exit_code == 2
    assert told.value.hint or "not a" in told.value.message


def test_a_look_has_no_profile_to_write(tmp_path):
    with pytest.raises(GpudocError, match="--only look"):
        options_of(COMMAND, Typed(only="look", out=tmp_path / "p.yaml"))
