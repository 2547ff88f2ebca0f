import numpy as np
import pytest
import torch
from torch import nn

from gpudoc.plan.memory import WorkModel, join, largest_that
from gpudoc.plan.tape import Formula, StepPhase, Storage, StorageKind, Tape, Work
from gpudoc.plan.tracing import Recipe, record
from tests.plan.zoo import recipes


def tape(batch, *sizes, events=None):
    made = Tape(batch, blocks=[Storage(size, f"op{i}", "", StepPhase.FORWARD) for i, size in enumerate(sizes)])
    made.events = events or [*range(len(sizes)), *(~i for i in range(len(sizes)))]
    return made


def test_two_batches_give_every_block_an_exact_line():
    model = join([tape(2, 100, 24), tape(4, 100, 44)], "cpu")
    assert model.sizes(10).tolist() == [100, 104]
    assert model.peak_bytes(10) == 204
    assert model.bytes_per_sample(10) == 10


def test_on_cuda_every_block_is_rounded_to_512():
    assert join([tape(2, 1, 513), tape(4, 1, 513)], "cuda").peak_bytes(3) == 512 + 1024


def test_a_third_batch_makes_a_square_exact():
    squares = [tape(batch, 4 * batch * batch + 7) for batch in (2, 4, 8)]
    assert join(squares[:2], "cpu").grows_faster_than_the_batch()
    assert join(squares, "cpu").peak_bytes(100) == 40_007


def test_a_size_with_a_formula_is_computed_from_its_dimensions():
    made = [tape(batch, min(100 * batch, 1000)) for batch in (2, 4)]
    for one in made:
        one.blocks[0].formula = Formula(lambda rows: min(100 * rows, 1000), (one.batch,))
    model = join(made, "cpu")
    assert [model.peak_bytes(batch) for batch in (1, 5, 50)] == [100, 500, 1000]


def test_a_line_does_not_look_like_a_square():
    assert not join([tape(2, 10, 20), tape(4, 10, 40)], "cpu").grows_faster_than_the_batch()


def test_frees_that_follow_each_other_may_come_in_any_order():
    a, b = tape(2, 1, 1, events=[0, 1, ~0, ~1]), tape(4, 1, 1, events=[0, 1, ~1, ~0])
    assert join([a, b], "cpu").exact


def test_steps_that_take_different_ways_are_joined_by_their_peaks():
    a, b = tape(2, 100), tape(4, 100, 100)
    model = join([a, b], "cpu")
    assert not model.exact
    assert model.peak_bytes(6) == 300


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 64, 1000])
def test_the_largest_number_is_found_exactly(limit):
    asked = []
    assert largest_that(lambda n: asked.append(n) or n <= limit, 1 << 20) == limit
    assert len(asked) <= 2 * limit.bit_length() + 2


def test_the_largest_number_is_capped_and_may_be_none():
    assert largest_that(lambda _: True, 100) == 100
    assert largest_that(lambda _: False, 100) == 0


@pytest.mark.parametrize("name", ["gpt2", "checkpointed", "gan"])
def test_two_small_traces_predict_batch_64(name):
    recipe = recipes("fp32")[name]
    model = join([record(recipe, 3), record(recipe, 5)], "cpu")
    assert model.exact
    assert model.peak_bytes(64) == pytest.approx(record(recipe, 64).peak_bytes(), rel=0.005)


def test_a_contrastive_loss_is_predicted_with_its_square():
    def step(model, inputs):
        out = model(inputs)
        nn.functional.cross_entropy(out @ out.t(), torch.arange(len(out))).backward()

    recipe = Recipe(build=lambda: nn.Linear(16, 16), batch=lambda n: torch.randn(n, 16), step=step)
    tapes = [record(recipe, batch) for batch in (24, 40, 96)]
    assert join(tapes[:2], "cpu").grows_faster_than_the_batch()
    assert join(tapes, "cpu").peak_bytes(1000) == pytest.approx(record(recipe, 1000).peak_bytes(), rel=0.005)


def test_the_composition_sums_to_the_peak():
    recipe = recipes("bf16")["bert"]
    model = join([record(recipe, 3), record(recipe, 5)], "cpu")
    composition = model.composition(32)
    assert sum(composition.by_kind.values()) == model.peak_bytes(32)
    assert sum(size for _, _, size in composition.by_module) == model.peak_bytes(32)
    assert composition.by_kind[StorageKind.ACTIVATIONS] > composition.by_kind[StorageKind.WEIGHTS]


def test_the_largest_batch_fits_and_the_next_does_not():
    recipe = recipes("fp32")["llama"]
    model = join([record(recipe, 3), record(recipe, 5)], "cpu")
    largest = model.largest_batch(500 << 20)
    assert model.peak_bytes(largest) <= 500 << 20 < model.peak_bytes(largest + 1)


def test_work_is_a_line_in_the_batch():
    works = tuple((Work("mm", "float32", 100 * b, 10 * b + 5),) for b in (2, 4))
    assert WorkModel(batches=(2, 4), works=works).at(10) == [Work("mm", "float32", 1000, 105)]


def test_sizes_do_not_overflow_at_absurd_batches():
    model = join([tape(2, 2 << 40), tape(4, 4 << 40)], "cpu")
    assert model.sizes(1000).tolist() == [1000 << 40]
    assert model.sizes(1000).dtype == np.int64
