from gpudoc.plan.tape import Block, Phase, Tape


def test_the_peak_is_the_highest_sum_of_living_blocks():
    tape = Tape(1, blocks=[Block(size, "empty", "", Phase.FORWARD) for size in (100, 50, 30)])
    tape.events = [0, 1, ~0, 2]

    assert tape.peak_bytes() == 150


def test_an_empty_tape_needs_nothing():
    assert Tape(1).peak_bytes() == 0
