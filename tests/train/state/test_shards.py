"""Checkpoints of sharded ranks: real ranks over gloo write them, and one process, two or three read them."""

from __future__ import annotations

import io
import pickle
import shutil

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from gpudoc.errors import GpudocError
from gpudoc.train.start.identity import digest
from gpudoc.train.state import checkpoint
from gpudoc.train.state.restore import load
from gpudoc.train.state.shards import _Unpickler, read_into, reason_of
from tests.train.ranks.test_distributed import told

# a bias of 3 over 2 ranks is cut unevenly, and one of 1 leaves a rank without any of it
HEAD = """
from gpudoc.train.state import checkpoint
from gpudoc.train.state.checkpoint import Content
from gpudoc.train.ranks.fsdp import Sharded
from gpudoc.train.start.identity import digest
from gpudoc.train.state.restore import load
from gpudoc.train.state.shards import capture, read_into, write_together
from gpudoc.train.state.staging import Staging
join(place, torch.device("cpu"))
ranks = Sharded(place, torch.device("cpu"))
class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
def build(seed):
    torch.manual_seed(seed)
    model = ranks.wrap(Net())
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)
def step(model, optimizer, number):
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(number))
    with ranks.accumulating(model, True):
        model(x).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
def content(model, optimizer, number):
    spread, state = capture(model, optimizer, ranks.council, Staging(torch.device("cpu")))
    state_of_run = {"schema": "gpudoc.state.v1", "step": number}
    return Content(step=number, model={}, optimizer=state, state=state_of_run, rng={0: {}}, shards=spread)
def whole_digest(model, optimizer):
    weights = {k: checkpoint.whole(v.detach()).clone() for k, v in model.state_dict().items()}
    rows = optimizer.state_dict()["state"]
    rows = {n: {k: checkpoint.whole(v).clone() for k, v in row.items()} for n, row in rows.items()}
    return [digest(weights), digest(rows)]
folder = out / "checkpoints"
"""

WRITE = (
    HEAD
    + """
model, optimizer = build(0)
for number in (1, 2):
    step(model, optimizer, number)
    write_together(folder, content(model, optimizer, number), ranks.council, keep=(1,))
(out / f"{place.rank}.json").write_text(json.dumps({"found": whole_digest(model, optimizer)}))
ranks.leave()
"""
)
READ = (
    HEAD
    + """
path, bad = checkpoint.newest_good(folder)
loaded = load(path, parts=True)
assert loaded.is_sharded and not loaded.model
model, optimizer = build(7)
read_into(path, model, optimizer, loaded.optimizer, ranks.council)
found = whole_digest(model, optimizer)
step(model, optimizer, 3)
told = {"found": found, "from": path.name, "bad": [f"{b.path.name}: {b.reason}" for b in bad]}
(out / f"{place.rank}.json").write_text(json.dumps(told))
ranks.leave()
"""
)


@pytest.fixture(scope="module")
def written(tmp_path_factory, forked):
    """(folder with step-1 and step-2 of two ranks, digests of the weights and optimizer at step 2)."""
    folder = tmp_path_factory.mktemp("written")
    done = forked.run(folder, WRITE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert told(folder, 0) == told(folder, 1)
    return folder / "checkpoints", told(folder, 0)["found"]


def test_each_rank_writes_its_shards_and_the_manifest_lists_them_all(written):
    folder, _ = written
    assert [step for step, _ in checkpoint.found_in(folder)] == [2, 1]
    path = folder / "step-2"
    assert sorted(p.name for p in (path / "dcp").iterdir()) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert sorted(p.name for p in path.iterdir()) == [
        "dcp",
        "manifest.json",
        "optimizer.pt",
        "rng-rank0.pt",
        "state.json",
    ]
    assert checkpoint.verify(path) is None
    assert not list(folder.glob("*.tmp-*"))


def test_one_process_reads_the_shards_as_full_tensors(written):
    folder, expected = written
    loaded = load(folder / "step-2")
    assert loaded.model["0.weight"].shape == (3, 6)
    rows = loaded.optimizer["state"]
    assert list(rows[0]) == ["step", "exp_avg", "exp_avg_sq"]
    names = list(
        torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)).state_dict()
    )
    assert [digest({name: loaded.model[name] for name in names}), digest(dict(rows))] == expected


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_any_number_of_ranks_reads_them(written, forked, tmp_path, ranks):
    folder, expected = written
    shutil.copytree(folder, tmp_path / "checkpoints")
    done = forked.run(tmp_path, READ, ranks=ranks)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(ranks):
        assert told(tmp_path, rank) == {"found": expected, "from": "step-2", "bad": []}


@pytest.mark.parametrize("file", ["__0_0.distcp", "__1_0.distcp", ".metadata"])
@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing"])
def test_a_damaged_shard_is_found_by_its_digest_and_named(written, tmp_path, file, harm):
    folder = tmp_path / "checkpoints"
    shutil.copytree(written[0], folder)
    shard = folder / "step-2" / "dcp" / file
    data = bytearray(shard.read_bytes())
    match harm:
        case "truncated":
            shard.write_bytes(data[:-1])
        case "flipped":
            data[len(data) // 2] ^= 1
            shard.write_bytes(data)
        case "missing":
            shard.unlink()
    good, bad = checkpoint.newest_good(folder)
    assert good.name == "step-1"
    assert [entry.path.name for entry in bad] == ["step-2"]
    assert bad[0].reason.startswith(f"dcp/{file}: ")


@pytest.mark.slow
def test_a_full_disk_on_one_rank_is_an_error_on_all_and_leaves_no_ruin(forked, tmp_path):
    """Wherever it happens, on either rank; the ranks are in step afterwards, so that the next one is written."""
    done = forked.run(
        tmp_path,
        HEAD
        + """
model, optimizer = build(0)
step(model, optimizer, 1)
write_together(folder, content(model, optimizer, 1), ranks.council, keep=())
shards = ["before shards", "inside shards", "after shards"]
places = [(where, 1) for where in shards]
places += [(where, 0) for where in (*shards, "inside optimizer.pt", "inside manifest.json", "before rename")]
said = []
for number, (where, rank) in enumerate(places, start=2):
    def full(at):
        if (at, place.rank) == (where, rank):
            raise OSError(28, "No space left on device")
    try:
        write_together(folder, content(model, optimizer, number), ranks.council, keep=(), fault=full)
    except OSError as problem:
        said.append(str(problem))
left = sorted(p.name for p in folder.iterdir())
write_together(folder, content(model, optimizer, 99), ranks.council, keep=(1,))
(out / f"{place.rank}.json").write_text(json.dumps({"said": said, "left": left}))
ranks.leave()
""",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    text = "No space left on device (rank {})"
    assert told(tmp_path, 0)["said"] == told(tmp_path, 1)["said"] == [text.format(1)] * 3 + [text.format(0)] * 6
    assert told(tmp_path, 0)["left"] == ["step-1"]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-1", "step-99"]


@pytest.mark.parametrize("where", ["inside shards"])
@pytest.mark.slow
def test_a_rank_killed_while_it_writes_leaves_the_older_checkpoint(forked, tmp_path, where):
    done = forked.run(
        tmp_path,
        HEAD
        + f"""
model, optimizer = build(0)
step(model, optimizer, 1)
write_together(folder, content(model, optimizer, 1), ranks.council, keep=())
def die(at):
    if at == {where!r} and place.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
write_together(folder, content(model, optimizer, 2), ranks.council, keep=(), fault=die)
""",
    )
    assert done.returncode != 0
    good, bad = checkpoint.newest_good(tmp_path / "checkpoints")
    assert (good.name, bad) == ("step-1", [])


class Planted:
    """A pickle that runs a command when it is read."""

    def __reduce__(self):
        import os

        return os.system, ("touch planted",)


def test_a_pickle_that_runs_something_is_refused(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(written[0], tmp_path / "checkpoints")
    path = tmp_path / "checkpoints" / "step-2"
    (path / "dcp" / ".metadata").write_bytes(pickle.dumps(Planted()))
    with pytest.raises(GpudocError, match=r"system is not allowed in a checkpoint"):
        load(path)
    assert not (tmp_path / "planted").exists()


def test_a_few_bytes_that_ask_for_gigabytes_are_no_metadata(written, forked, tmp_path):
    shutil.copytree(written[0], tmp_path / "checkpoints")
    # a place in the memo that is far beyond what a pickle of nine bytes can need
    (tmp_path / "checkpoints" / "step-2" / "dcp" / ".metadata").write_bytes(
        b"\x80\x02Nr" + (2**26).to_bytes(4, "little") + b"."
    )
    done = forked.run(
        tmp_path,
        """
from resource import RUSAGE_SELF, getrusage
from gpudoc.train.state.restore import load
before = getrusage(RUSAGE_SELF).ru_maxrss
try:
    load(out / "checkpoints" / "step-2")
except GpudocError as problem:
    grew = getrusage(RUSAGE_SELF).ru_maxrss - before
    (out / "0.json").write_text(json.dumps({"said": problem.message, "grew_kib": grew}))
""",
        ranks=1,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert told(tmp_path, 0)["said"].endswith("dcp/.metadata cannot be read: MemoryError: ")
    assert told(tmp_path, 0)["grew_kib"] < 400_000


class Called:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return getattr, self.arguments


def test_a_member_of_an_enumeration_may_be_got_by_name_and_nothing_else():
    """Python 3.11 before 3.11.4 pickles a member as a call of getattr."""
    member = pickle.dumps(Called(_MEM_FORMAT_ENCODING, "TORCH_PRESERVE_FORMAT"))
    assert _Unpickler(io.BytesIO(member)).load() is _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in a checkpoint"):
        _Unpickler(io.BytesIO(pickle.dumps(Called(torch.Size, "__init_subclass__")))).load()


@pytest.mark.slow
def test_weights_of_another_model_are_refused_by_name(written, forked, tmp_path):
    shutil.copytree(written[0], tmp_path / "checkpoints")
    done = forked.run(
        tmp_path,
        HEAD
        + """
model = ranks.wrap(torch.nn.Sequential(torch.nn.Linear(6, 3)))
optimizer = torch.optim.AdamW(model.parameters())
loaded = load(folder / "step-2", parts=True)
try:
    read_into(loaded.path, model, optimizer, loaded.optimizer, ranks.council)
except GpudocError as problem:
    (out / f"{place.rank}.json").write_text(json.dumps({"said": problem.message}))
ranks.leave()
""",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the weights are of another model: model.1.bias" in told(tmp_path, 0)["said"]


def test_the_reason_is_the_innermost_one():
    inner = OSError(28, "No space left on device")
    assert reason_of(CheckpointException("write", {1: (inner, None)})) == "No space left on device"
    assert reason_of(ValueError("odd\nsecond line")) == "ValueError: odd"


def with_metadata(written, tmp_path, change):
    shutil.copytree(written[0], tmp_path / "checkpoints")
    path = tmp_path / "checkpoints" / "step-2"
    with (path / "dcp" / ".metadata").open("rb") as stream:
        metadata = _Unpickler(stream).load()
    (path / "dcp" / ".metadata").write_bytes(pickle.dumps(change(metadata)))
    return path


@pytest.mark.parametrize("place", ["/etc/hostname", "../model.safetensors"])
def test_a_shard_that_lies_elsewhere_is_not_opened(written, tmp_path, place):
    def moved(metadata):
        for row in metadata.storage_data.values():
            row.relative_path = place
        return metadata

    path = with_metadata(written, tmp_path, moved)
    with pytest.raises(GpudocError, match=f"it names a file elsewhere: {place}"):
        load(path)


@pytest.mark.parametrize("found", [None, [1], {"model.a": 1}])
def test_a_metadata_of_odd_values_is_said_in_one_sentence(written, tmp_path, found):
    def odd(metadata):
        metadata.storage_data = found
        metadata.state_dict_metadata = found
        return metadata

    path = with_metadata(written, tmp_path, odd)
    with pytest.raises(GpudocError):
        load(path)


@pytest.mark.parametrize("name", ["optimizer", "optimizer.first.step", "optimizer.99.step"])
def test_a_state_that_no_parameter_has_is_said_by_its_name(written, tmp_path, name):
    """Before anything is read, so that no other rank is asked."""

    def renamed(metadata):
        rows = metadata.state_dict_metadata
        rows[name] = rows.pop("optimizer.0.exp_avg")
        return metadata

    state = load(written[0] / "step-2", parts=True).optimizer
    model = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(GpudocError, match=f"the optimizer state is of another model: {name}$"):
        read_into(with_metadata(written, tmp_path, renamed), model, optimizer, state, None)
