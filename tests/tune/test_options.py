from dataclasses import replace

import pytest

from gpudoc.errors import GpudocError
from gpudoc.tune.options import SearchOptions

CONFIG = SearchOptions(model="quickstart", device="cpu", goal="largest", only="batch, speed", budget="2m")
COMMAND = SearchOptions(command=("python3", "-c", "pass"))


def test_what_was_typed_is_read():
    options = replace(CONFIG, memory_limit="1GiB")
    options.check()
    assert options.parts == {"batch", "speed"}
    assert (options.budget_s, options.memory_limit_bytes) == (120.0, 1 << 30)
    assert CONFIG.memory_limit_bytes is None
    command = replace(COMMAND, only="loader, batch", allow="network", budget="90s")
    command.check()
    assert (command.parts, command.allowed, command.budget_s) == ({"loader", "batch"}, {"network"}, 90.0)


def test_without_only_all_parts_are_searched_and_look_alone_looks():
    assert COMMAND.parts == {"look", "loader", "batch"}
    assert not COMMAND.only_looks
    assert replace(COMMAND, only="look").only_looks
    assert SearchOptions(model="quickstart").parts == {"batch", "speed", "loader"}


@pytest.mark.parametrize("asked", [CONFIG, COMMAND], ids=["config", "command"])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"budget": "soon"}, "--budget: not a duration"),
        ({"budget": "2s"}, "too short"),
        ({"memory_limit": "banana"}, "--memory-limit: not a size"),
        ({"goal": "luck"}, "no such goal: 'luck'"),
        ({"only": "batch,luck"}, "no such part: luck"),
        ({"max_batch": 0}, "--max-batch 0: at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_option(asked, changes, says):
    with pytest.raises(GpudocError, match=says) as raised:
        replace(asked, **changes).check()
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (replace(COMMAND, model="quickstart"), "exclude each other"),
        (replace(COMMAND, gpus="2"), "--gpus goes with --model"),
        (replace(COMMAND, device="cpu"), "--device goes with --model"),
        (replace(COMMAND, target="24GiB"), "--target goes with --model"),
        (replace(COMMAND, allow="everything"), "--allow: no such part"),
        (replace(CONFIG, allow="network"), "--allow goes with a command"),
        (replace(CONFIG, in_place=True), "--in-place goes with a command"),
        (replace(COMMAND, only="speed"), "--only: no such part: speed"),
        (replace(CONFIG, only="look"), "--only: no such part: look"),
    ],
)
def test_what_only_a_config_or_only_a_command_has_is_refused_with_the_other(asked, says):
    with pytest.raises(GpudocError, match=says) as raised:
        asked.check()
    assert (raised.value.exit_code, bool(raised.value.hint)) == (2, True)


@pytest.mark.parametrize("asked", [replace(COMMAND, only="look"), replace(CONFIG, only="scaling")])
def test_what_tunes_nothing_has_no_profile_to_write(asked, tmp_path):
    with pytest.raises(GpudocError, match=f"--only {asked.only} tunes nothing"):
        replace(asked, out=tmp_path / "p.yaml").check()


def test_what_was_asked_can_be_typed_again():
    assert replace(CONFIG, memory_limit="1GiB", gpus="2").asked == (
        *("--device", "cpu", "--goal", "largest", "--only", "batch,speed", "--memory-limit", "1024MiB", "--gpus", "2"),
    )
    assert replace(COMMAND, allow="network", in_place=True, budget="9m").asked == ("--allow", "network", "--in-place")


def test_what_a_search_costs_at_most():
    options = SearchOptions(model="quickstart", budget="5m")
    assert options.cost(1, on_gpu=False) == "takes at most 5 min 00 s"
    assert options.cost(4, on_gpu=True) == "takes at most 5 min 00 s, 0.33 GPU-hours"


def test_where_the_scaling_is_measured_as_well_half_of_the_budget_is_for_tuning():
    asked = SearchOptions(model="x", budget="60s")
    assert (asked.tuning_s, asked.scaling_s) == (60.0, 0.0)
    both = replace(asked, only="speed,scaling")
    assert (both.tuning_s, both.scaling_s) == (30.0, 30.0)
    alone = replace(asked, only="scaling")
    assert (alone.tuning_s, alone.scaling_s) == (60.0, 60.0)
