from gpudoc.plan.tape import StepPhase, Storage, StorageKind, Tape


def test_the_peak_is_the_highest_sum_of_living_blocks():
    tape = Tape(1, blocks=[Storage(size, "empty", "", StepPhase.FORWARD) for size in (100, 50, 30)])
    tape.events = [0, 1, ~0, 2]

    assert tape.peak_bytes() == 150


def test_an_empty_tape_needs_nothing():
    assert Tape(1).peak_bytes() == 0


def gradients(events, *, adds_to=0, size=8):
    blocks = [Storage(8, "mm", "", StepPhase.BACKWARD), Storage(8, "mm", "", StepPhase.BACKWARD)]
    blocks.append(Storage(size, "add.Tensor", "head", StepPhase.BACKWARD, StorageKind.GRADIENTS, adds_to=adds_to))
    tape = Tape(1, blocks=blocks, events=events, marks={"end": len(events)})
    tape.add_in_place()
    return tape


def test_a_gradient_is_added_into_the_one_before_it_where_that_dies_with_the_addition():
    tape = gradients([0, 1, 2, ~1, ~0, ~2])
    assert tape.events == [0, 1, ~1, ~0]
    assert tape.marks == {"end": 4}
    assert (tape.blocks[0].kind, tape.blocks[0].module) == (StorageKind.GRADIENTS, "head")


def test_a_term_that_something_else_holds_is_not_added_into():
    blocks_made_between = [0, 1, 2, 1, ~0, ~2]
    for events in ([0, 1, 2, ~1, ~2], blocks_made_between):
        assert gradients(list(events)).events == events
    assert gradients([0, 1, 2, ~1, ~0, ~2], size=16).events == [0, 1, 2, ~1, ~0, ~2]


def test_a_third_gradient_is_added_into_the_same_memory():
    blocks = [Storage(8, "mm", "", StepPhase.BACKWARD) for _ in range(3)]
    blocks += [
        Storage(8, "add.Tensor", "", StepPhase.BACKWARD, adds_to=0),
        Storage(8, "add", "", StepPhase.BACKWARD, adds_to=3),
    ]
    tape = Tape(1, blocks=blocks, events=[0, 1, 3, ~0, ~1, 2, 4, ~3, ~2, ~4])
    tape.add_in_place()
    assert tape.events == [0, 1, ~1, 2, ~2, ~0]
