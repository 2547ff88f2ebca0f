from collections import OrderedDict, namedtuple

import torch

from gpudoc.workload.batch import map_tensors, num_bytes, num_samples, shapes, tensors_in, to_device

Pair = namedtuple("Pair", "image label")


def nested():
    return {
        "x": torch.ones(4, 2),
        "more": [torch.zeros(4, dtype=torch.int64), Pair(torch.ones(1), "name")],
        "ids": (1, "a", None),
        "ordered": OrderedDict(z=torch.ones(3)),
    }


def test_every_tensor_is_changed_and_the_nesting_kept():
    changed = map_tensors(nested(), lambda tensor: tensor + 1)
    assert changed["x"].eq(2).all()
    assert isinstance(changed["more"][1], Pair)
    assert changed["more"][1].label == "name"
    assert changed["ids"] == (1, "a", None)
    assert isinstance(changed["ordered"], OrderedDict)


def test_counts_and_sizes():
    assert len(list(tensors_in(nested()))) == 4
    assert num_samples(nested()) == 4
    assert num_bytes(nested()) == 4 * 2 * 4 + 4 * 8 + 4 + 3 * 4
    assert num_samples({"scalar": torch.tensor(3.0)}) == 1


def test_moving_keeps_values_and_may_change_the_memory_format():
    images = torch.rand(2, 3, 8, 8)
    moved = to_device([images, torch.ones(2)], torch.device("cpu"), channels_last=True)
    assert moved[0].is_contiguous(memory_format=torch.channels_last)
    assert moved[0].equal(images)


def test_a_batch_in_one_line():
    assert shapes((torch.zeros(32, 128, dtype=torch.int64), torch.zeros(32))) == "int64[32, 128], float32[32]"
