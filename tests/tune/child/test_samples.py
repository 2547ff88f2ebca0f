import gc
import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.process.memory import read_process_memory
from gpudoc.train.data.order import Order
from gpudoc.tune.child.samples import (
    Samples,
    Shuffled,
    collect_samples,
    copy_bytes,
    copy_of,
    is_outside,
    put_outside,
    sample_bytes,
    taken_back,
)
from gpudoc.units import MIB
from gpudoc.workload.build import load_workload


class Ragged(torch.utils.data.Dataset):
    def __init__(self, count, longest):
        self.count, self.longest, self.sizes, self.reads = count, longest, 3, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.reads.append(index)
        return torch.full((50 if index == self.longest and self.sizes > 1 else 1 + index % self.sizes,), float(index))


def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


@pytest.mark.parametrize("longest", [0, 777, 1999])
def test_the_longest_sample_is_in_every_worst_batch(longest):
    samples = Samples(Ragged(2000, longest), pad, 2000)
    assert samples.sizes_differ
    for batch in (1, 5, 300):
        assert samples.worst(batch).shape == (batch, 50)


def test_large_batches_read_nothing_more():
    data = Ragged(500, 3)
    samples = Samples(data, pad, 500)
    reads = len(data.reads)
    assert samples.typical(5000).shape[0] == 5000
    assert samples.worst(5000).shape[0] == 5000
    assert len(data.reads) == reads


def test_a_slow_data_set_is_not_read_whole(monkeypatch):
    monkeypatch.setattr("gpudoc.tune.child.samples.SCAN_SECONDS", 0.0)
    data = Ragged(100_000, 3)
    Samples(data, pad, 100_000)
    assert len(data.reads) < 100


def test_of_a_large_set_samples_from_all_over_are_read_each_once():
    data = Ragged(100_000, 3)
    Samples(data, pad, 100_000)
    scanned = data.reads[64:]
    assert len(set(scanned)) == len(scanned) == 20_000
    for end in (100, 1_000, 20_000):
        # no part of the set is left out, wherever time is over
        places = [0, *sorted(scanned[:end]), 100_000]
        assert max(b - a for a, b in itertools.pairwise(places)) < 3 * 100_000 / end


def test_samples_of_one_size_are_soon_believed_to_be_so_everywhere():
    data = Ragged(100_000, 3)
    data.sizes = 1
    assert not Samples(data, pad, 100_000).sizes_differ
    assert len(data.reads) == 64 + 2_000


def test_a_set_smaller_than_64_is_kept_whole():
    data = Ragged(10, 4)
    assert Samples(data, pad, 10).typical(10).shape == (10, 50)
    assert sorted(data.reads) == list(range(10))


def test_different_sizes_without_a_collate_are_explained():
    with pytest.raises(GpudocError, match="differ in size") as raised:
        Samples(Ragged(100, 3), None, 100).worst(8)
    assert "collate" in raised.value.hint


def test_what_stands_for_read_samples_is_held_until_the_next_batch_or_let_go():
    """As many tensors of a sample's size as training reads for a batch, less the 64 that are kept."""

    class Counted(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return torch.full((1234,), float(index))

    def alive():
        return sum(type(found) is torch.Tensor and found.shape == (1234,) for found in gc.get_objects())

    before = alive()
    samples = Samples(Counted(), None, 1000)
    kept = alive() - before
    for batch, held in ((300, 236), (500, 436), (100, 36), (64, 0), (300, 236)):
        samples.worst(batch)
        assert alive() - before - kept == held
    samples.let_go()
    assert alive() - before == kept
    assert samples.kept_bytes == 4 * 1234 * kept


class Large(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return {"x": torch.full((1 << 17,), 1.0 + index), "y": index}


def test_large_samples_are_kept_where_no_limit_counts_them():
    """Training has none of the 64 that are kept: with them a trial of 4 pictures ran out 35 MiB too early."""
    # threads that torch starts have stacks
    Samples(Large(), None, 2)
    before = read_process_memory().data_bytes
    samples = Samples(Large(), None, 100)
    assert read_process_memory().data_bytes - before < 16 * MIB
    assert samples.kept_bytes == 0
    batch = samples.worst(80)
    assert batch["x"].shape == (80, 1 << 17)
    assert len(samples._held) == 80
    assert len({sample["x"].data_ptr() for sample in samples._held}) == 80


def test_what_a_step_changes_of_its_batch_stays_as_it_was_in_the_next_trial():
    samples = Samples(Large(), lambda chosen: chosen[0], 100)
    samples.worst(1)["x"].zero_()
    samples.let_go()
    assert samples.worst(1)["x"].min() >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_a_large_tensor_that_is_put_outside_is_the_same(dtype):
    tensor = (torch.arange(1 << 15) % 3).to(dtype).view(2, -1).T
    found = taken_back(put_outside([(tensor.contiguous(), 3), {"y": "text"}]))
    assert is_outside(found)
    assert found[0][0].equal(tensor)
    assert found[0][0].dtype == dtype
    assert found[0][1:] == (3,)
    assert found[1] == {"y": "text"}


def test_what_a_data_set_keeps_in_memory_stays_there():
    whole = torch.zeros(8, 1 << 16)
    for sample in (whole[3], torch.zeros(8), torch.nn.Parameter(torch.zeros(1 << 16)), np.zeros(1 << 16)):
        assert put_outside(sample) is sample
        assert not is_outside(sample)


MEASURED = """
import torch
from gpudoc.process.memory import read_process_memory
from gpudoc.tune.child.samples import copy_bytes, copy_of
kept = []
for sample in ((torch.zeros(1024), 3), [torch.zeros(64), {"y": torch.zeros(64)}]):
    kept += [copy_of(sample) for _ in range(1000)]
    before = read_process_memory().data_bytes
    kept += [copy_of(sample) for _ in range(20000)]
    print((read_process_memory().data_bytes - before) / 20000 / copy_bytes(sample))
"""


def test_a_copy_takes_what_is_reckoned_with():
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, timeout=120)
    shares = [float(line) for line in done.stdout.split()]
    assert len(shares) == 2
    assert all(0.8 < share < 1.25 for share in shares), shares


def test_a_sample_that_leaves_the_heap_when_it_is_freed_takes_nothing_there():
    assert copy_bytes(torch.zeros(1 << 18)) == 0
    assert copy_bytes(torch.zeros((1 << 18) - 1)) > 0


def test_a_copy_shares_nothing():
    array, tensor, text = np.arange(3), torch.arange(3), "a text that is long enough"
    sample = ({"x": tensor, "y": [array, text]}, b"12345", 7)
    copied = copy_of(sample)
    assert copied[0]["x"].equal(tensor)
    assert copied[0]["x"].data_ptr() != tensor.data_ptr()
    assert (copied[0]["y"][0] == array).all()
    assert copied[0]["y"][0] is not array
    assert copied[0]["y"][1] == text
    assert copied[0]["y"][1] is not text
    assert copied[1:] == (b"12345", 7)
    assert copied[1] is not sample[1]


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
    with pytest.raises(GpudocError, match="iterable only") as raised:
        collect_samples(load_workload(str(config)))
    assert "gpudoc train" in raised.value.hint


def test_every_rank_and_every_epoch_is_shuffled_in_another_way_and_reads_each_sample_once():
    epochs = []
    for rank in (0, 1):
        shuffled = Shuffled(Order(num_samples=3000, global_batch=1, micro_batch=1, seed=7), rank, 2)
        assert len(shuffled) == 3000
        epochs += [list(shuffled), list(shuffled)]
    assert all(sorted(epoch) == list(range(3000)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_shuffling_takes_no_list_of_all_samples():
    count = 200_000
    order = Order(num_samples=count, global_batch=1, micro_batch=1, seed=7)
    order.indices(0, 0, 1)
    walk = iter(torch.utils.data.BatchSampler(Shuffled(order, 0, 1), 8, drop_last=True))
    tracemalloc.start()
    try:
        first = next(walk)
        assert tracemalloc.get_traced_memory()[1] < count
    finally:
        tracemalloc.stop()
    assert len(first) == 8
