import numpy as np
import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.tune.samples import Samples, collect_samples, sample_bytes
from gpudoc.workload.build import load_workload


class Ragged(torch.utils.data.Dataset):
    def __init__(self, count, longest):
        self.count, self.longest, self.reads = count, longest, 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.reads += 1
        return torch.full((50 if index == self.longest else 1 + index % 3,), float(index))


def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


@pytest.mark.parametrize("longest", [0, 777, 1999])
def test_the_longest_sample_is_in_every_worst_batch(longest):
    samples = Samples(Ragged(2000, longest), pad, 2000)
    assert samples.sizes_differ
    assert samples.scanned_all
    for batch in (1, 5, 300):
        assert samples.worst(batch).shape == (batch, 50)


def test_large_batches_read_nothing_more():
    data = Ragged(500, 3)
    samples = Samples(data, pad, 500)
    reads = data.reads
    assert samples.typical(5000).shape[0] == 5000
    assert samples.worst(5000).shape[0] == 5000
    assert data.reads == reads


def test_a_slow_data_set_is_not_read_whole(monkeypatch):
    monkeypatch.setattr("gpudoc.tune.samples.SCAN_SECONDS", 0.0)
    samples = Samples(Ragged(100_000, 3), pad, 100_000)
    assert not samples.scanned_all
    assert samples.num_scanned < 100


def test_a_set_smaller_than_64_is_kept_whole():
    samples = Samples(Ragged(10, 4), pad, 10)
    assert samples.scanned_all
    assert samples.typical(10).shape == (10, 50)


def test_different_sizes_without_a_collate_are_explained():
    with pytest.raises(GpudocError, match="differ in size") as raised:
        Samples(Ragged(100, 3), None, 100).worst(8)
    assert "collate" in raised.value.hint


def test_sizes_of_samples_of_every_kind():
    assert sample_bytes({"x": torch.zeros(4), "y": [np.zeros(2), "abc"]}) == 16 + 16 + 3
    assert sample_bytes((b"12345", 7)) == 5 + 8


def test_a_data_set_that_can_only_be_iterated_is_refused_with_what_works(tmp_path):
    (tmp_path / "streamed.py").write_text(
        "import torch\n"
        "class Stream(torch.utils.data.IterableDataset):\n"
        "    def __iter__(self):\n"
        "        yield torch.zeros(4), torch.tensor(0)\n"
        "def net():\n"
        "    return torch.nn.Linear(4, 2)\n"
    )
    config = tmp_path / "cfg.yaml"
    config.write_text(
        'model: {target: "streamed:net"}\n'
        'data: {target: "streamed:Stream"}\n'
        'loss: {target: "torch.nn:CrossEntropyLoss"}\n'
    )
    with pytest.raises(GpudocError, match="can only be iterated") as raised:
        collect_samples(load_workload(str(config)))
    assert "gpudoc train" in raised.value.hint
