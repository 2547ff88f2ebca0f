import pytest

from gpudoc.doctor.live.phases import Phase, classify, phase_of_line
from gpudoc.facts.process import Frame
from gpudoc.knowledge.stacks import stack_rows
from tests.facts.live.made import LINES, LOOP, STACKS, TORCH

PHASES = {
    "wait": Phase.DATA_WAIT, "start": Phase.WORKER_START, "load": Phase.DATA_LOAD, "collate": Phase.COLLATE,
    "forward": Phase.FORWARD, "backward": Phase.BACKWARD, "optimizer": Phase.OPTIMIZER, "python": Phase.PYTHON,
    "sync": Phase.SYNC, "copy": Phase.TRANSFER, "sleep": Phase.SLEEP, "log": Phase.LOGGING, "save": Phase.CHECKPOINT,
    "collective": Phase.COLLECTIVE, "compile": Phase.COMPILE, "import": Phase.STARTUP, "unclear": Phase.UNCLEAR,
}  # fmt: skip


@pytest.mark.parametrize(("name", "phase"), PHASES.items())
def test_each_kind_of_stack_has_its_phase(name, phase):
    assert classify(STACKS[name], LINES).phase is phase


def test_every_row_of_frames_and_lines_names_a_phase():
    rows = [row for section in ("outer", "loader", "inner", "lines") for row in stack_rows(section)]
    assert {row.says["phase"] for row in rows} <= set(Phase.__members__)


def test_forward_inside_the_optimizers_closure_is_forward():
    closure = (LOOP, Frame("step", f"{TORCH}/optim/adam.py", 200), Frame("linear", f"{TORCH}/nn/functional.py", 9))
    assert classify(closure, LINES).phase is Phase.FORWARD


def test_a_module_used_as_a_transform_in_the_data_set_is_loading():
    stack = (*STACKS["load"], Frame("Module._call_impl", f"{TORCH}/nn/modules/module.py", 1))
    assert classify(stack, LINES).phase is Phase.DATA_LOAD


def test_saving_gathers_and_is_still_saving():
    gather = Frame("all_gather", f"{TORCH}/distributed/distributed_c10d.py", 1)
    assert classify((LOOP, Frame("Trainer.save_checkpoint", "/u.py", 1), gather), LINES).phase is Phase.CHECKPOINT


def test_activation_checkpointing_is_no_checkpoint():
    stack = (LOOP, Frame("checkpoint", f"{TORCH}/utils/checkpoint.py", 480), *STACKS["forward"][1:])
    assert classify(stack, LINES).phase is Phase.FORWARD


def test_the_site_is_the_innermost_line_of_the_user():
    assert classify(STACKS["load"], LINES).site.file == "/home/me/data.py"
    assert classify(STACKS["forward"], LINES).site == LOOP


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("loss_value = loss.item()", Phase.SYNC),
        ("x = x.to(device, non_blocking=True)", Phase.TRANSFER),
        ("x = x.to(torch.bfloat16)", Phase.FORWARD),
        ("scores = q @ k.transpose(-2, -1)", Phase.FORWARD),
        ("loss.backward()", Phase.BACKWARD),
        ("print(step, loss)", Phase.LOGGING),
        ("torch.save(model.state_dict(), path)", Phase.CHECKPOINT),
        ("for token in tokens:", Phase.PYTHON),
        ("words = [w for w in text]", Phase.PYTHON),
        ("mixed = weight * value", Phase.UNCLEAR),
        ("", Phase.UNCLEAR),
    ],
)
def test_a_line_says_what_c_code_it_called(text, phase):
    assert phase_of_line(text, is_leaf=True, inside_model=False) is phase


def test_inside_a_model_a_change_of_place_is_part_of_forward():
    assert phase_of_line("mask = mask.to(x.device)", is_leaf=True, inside_model=True) is Phase.FORWARD


def test_a_frameworks_own_overhead_is_not_the_users_python():
    inside = Frame("_inner_loop", "/v/lib/python3.11/site-packages/transformers/trainer.py", 2000)
    assert classify((LOOP, inside), LINES).phase is Phase.OTHER
    assert classify((LOOP, Frame("dumps", "/usr/lib/python3.11/json/__init__.py", 9)), LINES).phase is Phase.PYTHON


@pytest.mark.parametrize(("name", "phase"), PHASES.items())
def test_python_3_10_names_functions_without_their_class(name, phase):
    bare = [Frame(f.function.rpartition(".")[2], f.file, f.line) for f in STACKS[name]]
    assert classify(bare, LINES).phase is phase


def test_waiting_for_a_lock_or_another_thread_is_no_work():
    wait = Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327)
    assert classify((LOOP, wait), LINES).phase is Phase.SLEEP
    assert phase_of_line("lock.acquire()", is_leaf=True, inside_model=False) is Phase.SLEEP


PIN, WORKER = f"{TORCH}/utils/data/_utils/pin_memory.py", f"{TORCH}/utils/data/_utils/worker.py"
LOADER, QUEUE = f"{TORCH}/utils/data/dataloader.py", "/lib/python3.11/multiprocessing/queues.py"
GET = (LOOP, Frame("_next_data", LOADER, 1), Frame("_try_get_data", LOADER, 2))


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ((*GET, Frame("Queue.get", QUEUE, 113)), Phase.DATA_RECEIVE),
        ((*GET, Frame("Queue.get", QUEUE, 0)), Phase.DATA_WAIT),
        ((*GET, Frame("Queue.get", QUEUE, 113), Frame("poll", QUEUE, 4)), Phase.DATA_WAIT),
        ((*GET, Frame("Queue.get", QUEUE, 113), Frame("rebuild_storage_fd", "/r.py", 4)), Phase.DATA_RECEIVE),
        ((LOOP, Frame("pin_memory", PIN, 3)), Phase.COLLATE),
        ((Frame("_pin_memory_loop", PIN, 3), Frame("pin_memory", PIN, 3)), Phase.DATA_LOAD),
        ((Frame("_worker_loop", WORKER, 3), Frame("Queue.get", QUEUE, 113)), Phase.DATA_LOAD),
        ((LOOP, Frame("_get_iterator", LOADER, 1), Frame("_reset", LOADER, 2)), Phase.WORKER_START),
        ((LOOP, Frame("_process_data", LOADER, 1)), Phase.DATA_WAIT),
    ],
)
def test_a_stack_through_the_loader_tells_waiting_from_receiving_and_making(stack, phase):
    assert classify(stack, LINES).phase is phase
