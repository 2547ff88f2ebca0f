import torch

from gpudoc.plan.recorder import TapeRecorder, user_place
from gpudoc.plan.scratch import Extra, Rules, pulse
from gpudoc.plan.tape import StepPhase, StorageKind, Tape


def watch(rules=None):
    tape = Tape(1)
    return tape, TapeRecorder(tape, Rules(rules or {}), fake=False)


def test_birth_and_death_are_seen_at_once():
    tape, recorder = watch()
    with recorder:
        a = torch.empty(100)
        b = a + 1
        del a
        c = b * 2
    assert [block.size_bytes for block in tape.blocks] == [400, 400, 400]
    assert tape.events == [0, 1, ~0, 2]
    assert c is not None


def test_a_view_is_no_new_memory():
    tape, recorder = watch()
    with recorder:
        whole = torch.empty(100)
        kept = whole.view(10, 10)[2:].t()
        del whole
        still = list(tape.events)
        del kept
    assert len(tape.blocks) == 1
    assert still == [0]
    assert tape.events == [0, ~0]


def test_a_storage_resized_in_place_is_freed_and_born_again():
    tape, recorder = watch()
    with recorder:
        value = torch.empty(10)
        value.resize_(1000)
    assert [block.size_bytes for block in tape.blocks] == [40, 4000]
    assert tape.events == [0, ~0, 1]


def test_scratch_comes_on_top_of_the_result_and_goes():
    tape, recorder = watch({"mm": lambda args, out: pulse(77)})
    a = torch.ones(2, 2)
    with recorder:
        kept = a @ a
    assert tape.events == [0, 1, ~1]
    assert tape.peak_bytes() == 16 + 77
    assert kept is not None


def test_the_kind_is_said_afterwards_and_holds_from_birth():
    tape, recorder = watch()
    with recorder:
        value = torch.empty(10)
        recorder.name([value], StorageKind.WEIGHTS, "layer")
    assert (tape.blocks[0].kind, tape.blocks[0].module) == (StorageKind.WEIGHTS, "layer")


def test_what_the_forward_pass_leaves_alive_is_an_activation():
    tape, recorder = watch()
    weight = torch.ones(4, 4, requires_grad=True)
    with recorder:
        recorder.phase = StepPhase.FORWARD
        out = (weight @ weight).exp()
        loss = (out * 2).sum()
        loss.backward()
    kinds = {block.op.split(".")[0]: block.kind for block in tape.blocks if block.phase is StepPhase.FORWARD}
    assert kinds["exp"] is StorageKind.ACTIVATIONS
    assert kinds["mul"] is StorageKind.TEMPORARY
    assert {block.phase for block in tape.blocks} == {StepPhase.FORWARD, StepPhase.BACKWARD}


def test_the_place_is_the_users_line():
    assert "test_recorder.py" in user_place()


def test_a_block_beside_a_result_lives_as_long_as_it():
    tape, recorder = watch({"mm": lambda args, out: Extra(beside={0: (16, 8)})})
    a = torch.ones(2, 2)
    with recorder:
        kept = a @ a
    assert tape.events == [0, 1, 2]
    del kept
    assert tape.events == [0, 1, 2, ~0, ~1, ~2]


def test_the_first_product_of_forward_and_of_backward_is_marked():
    tape = Tape(1)
    recorder = TapeRecorder(tape, Rules({}, products={"mm": ("workspace",)}))
    weight = torch.ones(2, 2, requires_grad=True)
    with recorder:
        loss = (torch.ones(2, 2) @ weight).sum()
        first = dict(tape.marks)
        loss.backward()
    assert list(first) == ["workspace, forward"]
    assert list(tape.marks) == ["workspace, forward", "workspace, backward"]
    assert tape.blocks[tape.events[tape.marks["workspace, forward"] - 1]].op == "mm"


def test_a_sum_of_gradients_names_its_first_term():
    tape, recorder = watch()
    recorder.phase = StepPhase.FORWARD
    value = torch.ones(4, requires_grad=True)
    with recorder:
        ((value * 2).sum() + (value * 3).sum()).backward()
    (total,) = (block for block in tape.blocks if block.adds_to is not None)
    assert (total.op, tape.blocks[total.adds_to].op) == ("add.Tensor", "mul.Tensor")


def test_what_lives_can_be_made_now_in_another_order():
    tape, recorder = watch()
    with recorder:
        first, _, second = torch.empty(1), torch.empty(2), torch.empty(3)
        del _
        recorder.begin_with([second])
    assert [tape.blocks[event].size_bytes for event in tape.events] == [12, 4]
    assert first is not None


def test_a_view_is_not_added_into():
    tape, recorder = watch()
    recorder.phase = StepPhase.FORWARD
    value = torch.ones(4, requires_grad=True)
    with recorder:
        ((value * 2).view(2, 2).sum() + (value.view(2, 2) * 3).sum()).backward()
    assert any(block.op == "add.Tensor" and block.phase is StepPhase.BACKWARD for block in tape.blocks)
    assert all(block.adds_to is None for block in tape.blocks)
