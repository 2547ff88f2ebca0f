"""The record of a training: equal for equal trainings, and another one as soon as anything differs."""

import pytest

from gpudoc.script.messages import HookOrder
from tests.script.watched import watch_text, watch_until

ORDER = HookOrder(purpose="trial", record=True, record_samples=True)
TRAIN = """
import random
for epoch in range(2):
    for x, y in DataLoader(Rows(), 8, shuffle=True):
        step(x, y)
torch.save(model.state_dict(), "kept.pt")
open("notes.txt", "w").write("four")
open("gone.txt", "w").close()
import os; os.remove("gone.txt")
"""


def record_of(folder, text=TRAIN, order=ORDER):
    watched = watch_text(folder, text, order)
    assert watched.code == 0, watched.err
    return watched.seen[0].record


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return record_of(tmp_path_factory.mktemp("recorded"))


def test_it_holds_each_loss_the_state_and_the_files_that_stay(record):
    assert record.steps == len(record.roots) == 6
    assert len(set(record.roots)) == 6
    assert set(record.state) >= {"parameters", "buffers", "optimizer", "torch's generator", "random's generator"}
    assert {path.rpartition("/")[2]: size for path, size in record.files.items()}["notes.txt"] == 4
    names = {path.rpartition("/")[2] for path in record.files}
    assert "kept.pt" in names
    assert "gone.txt" not in names


def test_the_same_training_has_the_same_record(record, tmp_path):
    other = record_of(tmp_path)
    assert (other.roots, other.state) == (record.roots, record.state)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (("        step(x, y)\n", "        step(x * 2, y)\n"), {"roots", "parameters"}),
        (("torch.save", "torch.rand(1); torch.save"), {"torch's generator"}),
        (("torch.save", "random.random(); torch.save"), {"random's generator"}),
        (("torch.save", "model.weight.data += 1; torch.save"), {"parameters"}),
        (("torch.save", "model.register_buffer('seen', torch.ones(1)); torch.save"), {"buffers"}),
    ],
)
def test_whatever_differs_is_seen(record, tmp_path, change, differs):
    other = record_of(tmp_path, TRAIN.replace(*change))
    found = {name for name in record.state if record.state[name] != other.state[name]}
    found |= {"roots"} if other.roots != record.roots else set()
    assert found >= differs
    assert "torch's generator" in found or "torch's generator" not in differs


def test_a_table_that_no_checkpoint_holds_is_no_other_training(record, tmp_path):
    kept = "model.register_buffer('table', torch.ones(4), persistent=False); torch.save"
    assert record_of(tmp_path, TRAIN.replace("torch.save", kept)).state == record.state


def test_it_is_told_once_the_steps_that_were_asked_for_have_run(tmp_path):
    order = ORDER.model_copy(update={"steps": 2})
    # it is held then, until whoever asked ends it
    seen = watch_until(tmp_path, TRAIN, order, lambda seen: bool(seen and seen[0].record and seen[0].measured))
    # behind the first step
    assert seen[0].record.steps == 3


def test_a_script_that_sets_no_seed_begins_with_the_same_random_numbers(tmp_path):
    text = "print(torch.rand(1), random.random())"
    first, second = (watch_text(tmp_path, f"import random, torch\n{text}", ORDER, head=False).out for _ in range(2))
    assert first == second


def test_what_tempfile_draws_by_chance_is_no_part_of_a_files_name(tmp_path):
    text = TRAIN + "import tempfile; open(tempfile.mkdtemp(prefix='run_') + '/a.txt', 'w').write('a')\n"
    first, second = (record_of(tmp_path, text) for _ in range(2))
    assert first.files == second.files
    assert any(path.endswith("/run_*/a.txt") for path in first.files)


def test_its_seconds_are_those_of_every_step_and_not_of_what_is_done_once_in_the_first_or_behind_the_last(tmp_path):
    clock = """
import sys, types, time
inside, now = sys.modules["_gpudoc_inside.recorder"], [0.0]
inside.time = types.SimpleNamespace(perf_counter=lambda: now[0], sleep=time.sleep)
digest, state = inside.batches.digest, inside.StateRecorder._state
inside.batches.digest = lambda *given: (now.append(now.pop() + 1), digest(*given))[1]
modules = inside._modules_of
inside._modules_of = lambda optimizer: (now.append(now.pop() + 500), modules(optimizer))[1]
inside.StateRecorder._state = lambda self: (now.append(now.pop() + 1000), state(self))[1]
"""
    record = record_of(tmp_path, clock + TRAIN)
    # one of the clock's seconds for each call of backward
    assert record.seconds == len(record.roots) == 6
