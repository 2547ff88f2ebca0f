"""A batch is counted, measured and recognised whatever it is made of; the largest samples come first when asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from gpudoc.script.inside._gpudoc_inside import batches, loaders

ROWS = torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "batch",
    [
        ROWS,
        [ROWS, 1],
        (0, {"x": ROWS}),
        {"text": ["a"], "ids": ROWS},
        SimpleNamespace(x=ROWS),
        [torch.tensor(1.0), ROWS],
    ],
    ids=["tensor", "list", "nested", "dict", "object", "scalar first"],
)
def test_samples_and_bytes_of_any_batch(batch):
    assert batches.count(batch, None) == 4
    assert batches.num_bytes(batch) >= 48


def test_a_batch_without_tensors_is_as_large_as_asked_for():
    assert batches.count(["a", "b"], 2) == 2
    assert batches.count(["a", "b"], None) is None
    # one graph of a batch may have more nodes than the batch has samples
    assert batches.count(ROWS, 3) == 3


def test_an_object_that_holds_itself_ends():
    batch = SimpleNamespace(x=ROWS)
    batch.self = batch
    assert batches.num_bytes(batch) >= 48


def test_a_digest_tells_values_places_and_formats_apart():
    base = batches.digest([ROWS, ROWS + 1])
    assert batches.digest((ROWS.clone(), ROWS + 1)) == base
    others = [[ROWS + 1, ROWS], [ROWS], [ROWS.double(), ROWS + 1], [ROWS.reshape(3, 4), ROWS + 1]]
    assert base not in {batches.digest(other) for other in others}
    assert batches.digest(ROWS.bfloat16().t()) != batches.digest(ROWS.bfloat16())


class Texts(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.zeros(self.lengths[index])


def test_the_largest_samples_fill_the_first_batches_and_the_scripts_own_follow():
    loader = DataLoader(Texts([1, 5, 2, 9, 3, 4]), 2, collate_fn=lambda rows: [len(row) for row in rows])
    plain = list(loader)
    assert loaders.largest_first(loader, 2) == 36
    assert list(loader) == [[9, 5], [9, 5], *plain]
    assert len(loader) == 3


def test_those_that_time_allows_to_look_at_are_from_all_over_the_data_set(monkeypatch):
    monkeypatch.setattr(loaders, "MAX_SCANNED", 50)
    # the second half is longer, and is met however little is looked at
    found = loaders.largest_samples(Texts([1] * 500 + [2] * 500), 20)
    assert len(set(found)) == 20
    assert min(found) >= 500


def test_fewer_samples_than_a_batch_are_repeated():
    loader = DataLoader(Texts([1, 2]), 4, collate_fn=lambda rows: [len(row) for row in rows])
    loaders.largest_first(loader, 1)
    assert next(iter(loader)) == [2, 1, 2, 1]


def test_what_is_no_tensor_has_a_size_too():
    assert loaders.sample_size("text") == 4
    assert loaders.sample_size({"ids": [1, 2, 3], "image": SimpleNamespace(size=(4, 5))}) == 23
