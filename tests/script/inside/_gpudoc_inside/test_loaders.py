"""Loaders are seen and built as ordered, however the script builds them; its own mistakes stay its own."""

from __future__ import annotations

import sys

import pytest

from gpudoc.script.messages import HookOrder, LoaderOrder
from tests.script.watched import bare, save, watch, watch_text

MANY = """
import torch.utils.data as data

class Mine(DataLoader):
    def __init__(self, rows, **more):
        super().__init__(rows, batch_size=6, **more)

def make(split):
    return DataLoader(Rows(24 if split == "train" else 8), 4)

class Lengths:
    def __iter__(self): return iter([[0, 1], [2, 3, 4]])
    def __len__(self): return 2

class Stream(IterableDataset):
    def __iter__(self): return iter(range(8))

DataLoader(Rows(), 8, True)
Mine(Rows(), shuffle=True)
data.DataLoader(dataset=Rows(), batch_size=2, num_workers=1, drop_last=True)
for split in ("train", "test"):
    make(split)
DataLoader(Rows(), batch_sampler=Lengths())
DataLoader(Stream(), batch_size=None)
for epoch in range(2):
    DataLoader(Rows(), 3)
try:
    DataLoader(Rows(), 4, shuffle=True, sampler=[1])
except ValueError as problem:
    print(problem)
print(DataLoader(Rows(), 3).batch_size, DataLoader.__init__.__name__)
"""
ORDER = LoaderOrder(num_workers=2, prefetch_factor=3, persistent_workers=True)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return watch_text(tmp_path_factory.mktemp("many"), MANY)


def test_every_way_to_build_a_loader_is_seen(many):
    told = [(loader.batch_size, loader.num_workers, loader.sampler) for loader in many.loaders.values()]
    assert told[:3] == [(8, 0, "RandomSampler"), (6, 0, "RandomSampler"), (2, 1, "SequentialSampler")]
    first, mine = many.loaders[0], many.loaders[1]
    assert (first.place, first.line, first.dataset, first.samples, first.length) == ("train.py:35", 35, "Rows", 24, 3)
    assert first.file.endswith("/train.py")
    # the class that the script made itself is the nearest of its own lines
    assert mine.place == "train.py:23"
    assert many.loaders[2].drop_last


def test_a_loader_has_a_name_that_tells_it_from_others_of_its_line_and_stays_when_it_is_built_again(many):
    train, test = many.loaders[3], many.loaders[4]
    assert train.place == test.place
    assert train.key != test.key
    assert many.loaders[7].key == many.loaders[8].key


def test_a_loader_with_its_own_batches_and_a_stream_say_so(many):
    own, stream = many.loaders[5], many.loaders[6]
    assert (own.own_batch_sampler, own.batch_size, own.length) == (True, None, 2)
    assert (stream.iterable, stream.sharded, stream.length, stream.batch_size) == (True, False, None, None)


def test_the_scripts_own_mistake_is_told_in_torchs_words_and_is_no_loader(many):
    assert many.out == "sampler option is mutually exclusive with shuffle\n3 __init__\n"
    assert (many.code, many.err) == (0, "")
    assert len(many.loaders) == 10
    assert many.seen[0].asides == ()


def test_the_loaders_that_the_order_is_for_are_built_so_and_no_others(tmp_path, many):
    keys = (many.loaders[1].key, many.loaders[3].key, many.loaders[5].key, many.loaders[6].key)
    order = HookOrder(purpose="trial", keys=keys, loader=ORDER, batch=5)
    loaders = watch_text(tmp_path, MANY, order).loaders
    all_of_it = {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True, "batch_size": 5}
    for number in (1, 3):
        assert loaders[number].applied == all_of_it
        assert (loaders[number].num_workers, loaders[number].batch_size) == (2, 5)
    assert loaders[1].script == {**dict.fromkeys(all_of_it), "num_workers": 0, "persistent_workers": False,
                                 "pin_memory": False, "batch_size": 6}  # fmt: skip
    assert set(loaders[5].refused) == {"batch_size", "persistent_workers"}
    assert set(loaders[6].refused) == {"num_workers", "batch_size"}
    assert all(not loaders[number].applied for number in (0, 2, 4, 7, 8))


ALL = """
def say(what, *found):
    print(what, *found, sep="|")

shuffled = DataLoader(Rows(), 4, shuffle=True)
other = DataLoader(Rows(8), 4)
for epoch in range(3):
    for x, y in shuffled:
        say("losses", f"{step(x, y):.9f}")
    with torch.no_grad():
        for x, y in other:
            model(x)

class Shared(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id if info else 0, 24, info.num_workers if info else 1))

class Not(IterableDataset):
    def __iter__(self): return iter(range(24))

shared = DataLoader(Shared(), 4)
alone = DataLoader(Not(), 4)
for stream in (shared, alone):
    say("streams", sorted(int(row) for batch in stream for row in batch))

class Growing(Rows):
    level = 0
    def __getitem__(self, i): return torch.tensor([self.level * 100 + i]), torch.tensor([0])

rows = Growing(4)
growing = DataLoader(rows, 4, num_workers=1)
for epoch in range(4):
    rows.level = epoch // 2
    say("growing", *[batch.flatten().tolist() for batch, _ in growing])

class Strict(DataLoader):
    def check_worker_number_rationality(self): 1 / (self.num_workers != 2)

strict = Strict(Rows(), 4)
say("strict", strict.num_workers, len(list(strict)))
"""


def keys_in(script, **loaders):
    """The keys of the loaders that a script gives these names to."""
    lines = script.read_text().splitlines()
    return tuple(
        f"train.py:{next(n for n, line in enumerate(lines, 1) if line.startswith(name + ' = '))}|{rest}"
        for name, rest in loaders.items()
    )


@pytest.fixture(scope="module")
def alone_and_ordered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    script = save(folder, ALL)
    keys = keys_in(
        script,
        shuffled="Rows|24|shuffled",
        shared="Shared|None|in order",
        alone="Not|None|in order",
        growing="Growing|4|in order",
        strict="Rows|24|in order",
    )
    ordered = watch(folder, [sys.executable, script], HookOrder(purpose="run", keys=keys, loader=ORDER))
    return bare([sys.executable, script]), ordered


def parts_of(text, what):
    return [line for line in text.splitlines() if line.startswith(what)]


def test_losses_are_the_same_step_by_step_with_the_ordered_workers(alone_and_ordered):
    alone, ordered = alone_and_ordered
    assert ordered.loaders[0].applied == {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}
    assert parts_of(ordered.out, "losses") == parts_of(alone.stdout, "losses")
    assert len(set(parts_of(alone.stdout, "losses"))) == 18


def test_a_stream_gives_the_same_samples_with_the_ordered_workers(alone_and_ordered):
    alone, ordered = alone_and_ordered
    assert ordered.loaders[2].applied["num_workers"] == 2
    assert set(ordered.loaders[3].refused) == {"num_workers"}
    assert parts_of(ordered.out, "streams") == parts_of(alone.stdout, "streams") == [f"streams|{list(range(24))}"] * 2


def test_workers_that_live_on_start_afresh_when_the_data_set_was_changed(alone_and_ordered):
    alone, ordered = alone_and_ordered
    assert ordered.loaders[4].applied["persistent_workers"] is True
    assert parts_of(ordered.out, "growing") == parts_of(alone.stdout, "growing")
    assert [data.changed for data in ordered.seen[0].data if data.loader == 4 and data.changed] == ["level"]


def test_what_torch_refuses_to_build_is_built_as_the_script_says(alone_and_ordered):
    _, ordered = alone_and_ordered
    assert parts_of(ordered.out, "strict") == ["strict|0|6"]
    assert ordered.loaders[5].applied == {}
    assert "division by zero" in ordered.loaders[5].refused["num_workers"]


def test_nothing_but_the_ordered_settings_differs(alone_and_ordered):
    alone, ordered = alone_and_ordered
    assert (ordered.code, ordered.out, ordered.err) == (alone.returncode, alone.stdout, alone.stderr)
    assert ordered.seen[0].asides == ()
