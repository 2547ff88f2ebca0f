"""What a data set would do is read from its byte code, through what it holds and what it calls; nothing is run."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from gpudoc.script.inside._gpudoc_inside import bounds


def jitter(value):
    return value + random.random()


def through_another(value):
    return jitter(value)


def plain(value):
    return value * 2


class Own(Dataset):
    def __init__(self, transform=None):
        self.transform = transform

    def __getitem__(self, index):
        return self.transform(index)


class Crop:
    def __call__(self, value):
        return value[torch.randint(0, 3, (1,)) :]


class Compose:
    def __init__(self, *steps):
        self.steps = list(steps)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (plain, False),
        (jitter, True),
        (through_another, True),
        (lambda value: jitter(value), True),
        (functools.partial(jitter), True),
        (Compose(plain, Crop()), True),
        (Compose(plain), False),
    ],
    ids=["plain", "jitter", "called", "lambda", "partial", "nested", "nested plain"],
)
def test_random_numbers_are_found_through_what_is_held_and_called(transform, expected):
    assert bounds.mentions(Own(transform), set(bounds.RANDOM)) is expected


def test_a_data_set_that_asks_for_its_worker_is_known_also_inside_another():
    class Asking(Dataset):
        def __iter__(self):
            info = get_worker_info()
            return iter([info])

    assert bounds.mentions(Asking(), {"get_worker_info"})
    assert bounds.mentions(Own(Asking()), {"get_worker_info"})
    assert not bounds.mentions(Own(plain), {"get_worker_info"})


def test_torchs_own_code_is_not_the_users():
    assert not bounds.mentions(torch.utils.data.TensorDataset(torch.zeros(3)), set(bounds.RANDOM))


class Stores(Dataset):
    def __init__(self):
        self.load()

    def load(self):
        self.rows = [1]

    def stage(self, number):
        self.number = number

    def __getitem__(self, index):
        return self.helped(index)

    def helped(self, index):
        self.count = index
        return index

    def __len__(self):
        return len(self.rows)


def test_storing_counts_where_reading_leads_to_it():
    assert bounds.stores(Stores(), "__getitem__") == "Stores.helped"
    assert bounds.stores(Stores(), "__len__") is None
    assert bounds.stores(Own(plain), "__getitem__") is None


class Before:
    def __iter__(self):
        order = torch.randperm(3).tolist()
        yield from order


class Between:
    def __iter__(self):
        while True:
            yield torch.randint(0, 3, (1,)).item()


class Again:
    def __iter__(self):
        while True:
            yield from torch.randperm(3).tolist()


class AtOnce:
    def __iter__(self):
        return iter(torch.randperm(3).tolist())


@pytest.mark.parametrize(
    ("sampler", "expected"), [(Before, False), (Between, True), (Again, True), (AtOnce, False)], ids=lambda it: str(it)
)
def test_a_sampler_that_draws_between_its_items_is_told_from_one_that_draws_before(sampler, expected):
    assert bounds.draws_on_the_way(sampler.__iter__) is expected
