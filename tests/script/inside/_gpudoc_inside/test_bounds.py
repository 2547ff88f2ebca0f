"""What of an order a loader gets: never what would change which samples come, or in which order."""

from __future__ import annotations

import inspect
import multiprocessing
import random

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, get_worker_info

from gpudoc.script.inside._gpudoc_inside import bounds

FULL = {"num_workers": 3, "prefetch_factor": 4, "pin_memory": None, "persistent_workers": True}


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index])


class Counting(Rows):
    def __getitem__(self, index):
        self.calls = index
        return index


class ToldTheEpoch(Rows):
    def set_epoch(self, epoch):
        self.epoch = epoch


class Noisy(Rows):
    def __getitem__(self, index):
        return torch.rand(1) + index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


class Shared(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id if info else 0, 8, info.num_workers if info else 1))


class SharedAtRandom(IterableDataset):
    def __iter__(self):
        rows = list(range(8))
        random.shuffle(rows)
        info = get_worker_info()
        return iter(rows[info.id :: info.num_workers] if info else rows)


class Drawing:
    def __iter__(self):
        for _ in range(8):
            yield int(torch.randint(0, 8, (1,)))

    def __len__(self):
        return 8


class AllAtOnce(Drawing):
    def __iter__(self):
        return iter(torch.randperm(8).tolist())


def judged(dataset=None, *, order=None, batch=None, **said):
    signature = inspect.signature(DataLoader.__init__).bind(None, dataset if dataset is not None else Rows(), **said)
    signature.apply_defaults()
    return bounds.judge(dict(signature.arguments), {"loader": order, "batch": batch})


def test_an_ordinary_loader_gets_what_was_ordered():
    verdict = judged(order=FULL)
    assert verdict.changed == {"num_workers": 3, "prefetch_factor": 4, "persistent_workers": True}
    assert (verdict.refused, verdict.notes) == ({}, [])


def test_what_the_script_says_already_is_no_change():
    assert judged(order={"num_workers": 2, "prefetch_factor": 2}, num_workers=2).changed == {}
    assert judged(order=None, num_workers=2).changed == {}


def test_no_workers_take_back_what_only_workers_can_have():
    order = {"num_workers": 0, "prefetch_factor": 2, "persistent_workers": True}
    verdict = judged(order=order, num_workers=2, prefetch_factor=4, multiprocessing_context="fork")
    assert verdict.changed == {"num_workers": 0, "prefetch_factor": None, "multiprocessing_context": None}
    DataLoader(Rows(), **{"num_workers": 2, **verdict.changed})


@pytest.mark.parametrize("dataset", [Stream(), SharedAtRandom()], ids=["not shared", "shared at random"])
def test_a_stream_that_would_repeat_or_miss_samples_keeps_its_workers(dataset):
    verdict = judged(dataset, order=FULL)
    assert set(verdict.refused) == {"num_workers"}
    assert verdict.changed == {}


def test_a_stream_that_shares_itself_out_gets_workers_and_the_other_order_is_said():
    verdict = judged(Shared(), order=FULL)
    assert verdict.changed["num_workers"] == 3
    assert "a different order" in verdict.notes[0]
    assert "num_workers" in judged(Shared(), order=FULL, drop_last=True).refused


def test_a_worker_function_that_shares_a_stream_out_counts():
    def share(number):
        get_worker_info().dataset.number = number

    assert judged(Stream(), order=FULL, worker_init_fn=share).changed["num_workers"] == 3


@pytest.mark.parametrize("dataset", [Counting(), ToldTheEpoch()], ids=["stores", "told the epoch"])
def test_workers_do_not_live_on_where_the_data_set_object_changes(dataset):
    verdict = judged(dataset, order=FULL)
    assert set(verdict.refused) == {"persistent_workers"}
    assert verdict.changed["num_workers"] == 3


def test_random_transforms_are_said():
    assert "random numbers" in judged(Noisy(), order=FULL).notes[0]
    assert "random numbers" in judged(order=FULL, collate_fn=lambda rows: torch.rand(1)).notes[0]
    assert judged(Noisy(), order={"prefetch_factor": 4}, num_workers=2).notes == []


def test_a_sampler_that_draws_while_batches_are_made_keeps_its_workers():
    assert "num_workers" in judged(order=FULL, sampler=Drawing()).refused
    assert "num_workers" in judged(order=FULL, batch_sampler=BatchSampler(Drawing(), 2, drop_last=False)).refused
    assert judged(order=FULL, sampler=AllAtOnce()).refused == {}


def test_workers_that_live_on_are_neither_taken_nor_given_where_the_seeds_would_differ():
    assert set(judged(order={"num_workers": 0}, num_workers=2, persistent_workers=True).refused) == {"num_workers"}
    off = judged(order={"persistent_workers": False}, num_workers=2, persistent_workers=True)
    assert set(off.refused) == {"persistent_workers"}
    assert set(judged(order=FULL, batch_size=None, sampler=AllAtOnce()).refused) == {"persistent_workers"}


def test_a_batch_is_changed_only_where_the_loader_makes_it():
    assert judged(batch=6, batch_size=2).changed == {"batch_size": 6}
    assert judged(batch=6, batch_size=6).changed == {}
    assert set(judged(batch=6, batch_size=None).refused) == {"batch_size"}
    own = BatchSampler(SequentialSampler(Rows()), 2, drop_last=False)
    assert set(judged(batch=6, batch_sampler=own).refused) == {"batch_size"}


def test_pinning_is_left_out_where_torch_has_no_gpu_to_pin_for(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    assert set(judged(order={"pin_memory": True}).refused) == {"pin_memory"}
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert judged(order={"pin_memory": True}).changed == {"pin_memory": True}


def test_what_cannot_be_sent_to_workers_that_are_not_forked_gets_none(monkeypatch):
    monkeypatch.setattr(torch.multiprocessing, "get_start_method", lambda allow_none: "spawn")
    verdict = judged(order=FULL, collate_fn=lambda rows: rows)
    assert "cannot be sent" in verdict.refused["num_workers"]
    assert judged(order=FULL).refused == {}


def test_asking_for_the_start_method_does_not_settle_it(monkeypatch):
    monkeypatch.setattr(multiprocessing.context, "_default_context", multiprocessing.context._default_context)
    judged(order=FULL)
    assert multiprocessing.get_start_method(allow_none=True) in (None, "fork")


def test_tensors_on_a_gpu_stay_in_the_process_that_has_it():
    class OnCard(Rows):
        def __init__(self):
            self.rows = type("Card", (), {"is_cuda": True})()

    assert "GPU" in judged(OnCard(), order=FULL).refused["num_workers"]
