import torch

from gpudoc.plan.recorder import Recorder, user_place
from gpudoc.plan.scratch import Extra, Rules
from gpudoc.plan.tape import Kind, Phase, Tape


def watch(rules=None):
    tape = Tape(1)
    return tape, Recorder(tape, Rules(rules or {}), fake=False)


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
    tape, recorder = watch({"mm": lambda args, out: Extra(pulse_bytes=77)})
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
        recorder.name([value], Kind.WEIGHTS, "layer")
    assert (tape.blocks[0].kind, tape.blocks[0].module) == (Kind.WEIGHTS, "layer")


def test_what_the_forward_pass_leaves_alive_is_an_activation():
    tape, recorder = watch()
    weight = torch.ones(4, 4, requires_grad=True)
    with recorder:
        recorder.phase = Phase.FORWARD
        out = (weight @ weight).exp()
        loss = (out * 2).sum()
        loss.backward()
    kinds = {block.op.split(".")[0]: block.kind for block in tape.blocks if block.phase is Phase.FORWARD}
    assert kinds["exp"] is Kind.ACTIVATIONS
    assert kinds["mul"] is Kind.TEMPORARY
    assert {block.phase for block in tape.blocks} == {Phase.FORWARD, Phase.BACKWARD}


def test_the_place_is_the_users_line():
    assert "test_recorder.py" in user_place()
