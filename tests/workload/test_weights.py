"""Weights from files: what is loaded, what is refused, and that reading a file never runs what is in it."""

from __future__ import annotations

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.workload.config import Weights
from gpudoc.workload.weights import load_weights


def net(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.Linear(width, 1))


def contents(model, prefix=""):
    """The model's tensors with values that no initialisation gives, in memory of their own."""
    return {prefix + name: torch.full_like(value, 7) for name, value in model.state_dict().items()}


def all_loaded(model):
    return all(bool((value == 7).all()) for value in model.state_dict().values())


def write_sharded(folder, values):
    """Two files and the index that says which tensor is in which."""
    halves = {"a.safetensors": dict(list(values.items())[:3]), "b.safetensors": dict(list(values.items())[3:])}
    for name, half in halves.items():
        save_file(half, folder / name)
    names = {key: name for name, half in halves.items() for key in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


@pytest.mark.parametrize(
    ("write", "file"),
    [
        (lambda folder, values: save_file(values, folder / "w.safetensors"), "w.safetensors"),
        (lambda folder, values: save_file(values, folder / "model.safetensors"), "."),
        (write_sharded, "model.safetensors.index.json"),
        (lambda folder, values: torch.save(values, folder / "w.pt"), "w.pt"),
        (lambda folder, values: torch.save({"epoch": 3, "state_dict": values}, folder / "w.ckpt"), "w.ckpt"),
        (lambda folder, values: torch.save(values, folder / "w.pt", _use_new_zipfile_serialization=False), "w.pt"),
    ],
    ids=["safetensors", "folder", "sharded", "torch", "inside a checkpoint", "old format"],
)
def test_every_kind_of_file_is_read(tmp_path, write, file):
    model = net()
    write(tmp_path, contents(model))
    match = load_weights(model, Weights(file=file), tmp_path)
    assert all_loaded(model)
    assert match.is_whole
    assert len(match.loaded) == 9
    assert match.num_bytes == sum(value.nbytes for value in model.state_dict().values())


def test_a_file_in_half_precision_is_loaded_in_the_models_own(tmp_path):
    model = nn.Linear(2, 2)
    save_file({name: value.half() for name, value in contents(model).items()}, tmp_path / "w.safetensors")
    load_weights(model, Weights(file="w.safetensors"), tmp_path)
    assert model.weight.dtype == torch.float32
    assert all_loaded(model)


def test_what_has_no_counterpart_is_refused_with_the_prefix_that_would_fit(tmp_path):
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_file(contents(model, "backbone."), tmp_path / "w.safetensors")
    with pytest.raises(GpudocError, match=r"0 tensors match; the file lacks 0\.weight") as problem:
        load_weights(model, Weights(file="w.safetensors"), tmp_path)
    assert "prefix: 'backbone.'" in problem.value.hint
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    load_weights(model, Weights(file="w.safetensors", prefix="backbone."), tmp_path)
    assert all_loaded(model)


def test_weights_of_a_part_are_put_into_that_part(tmp_path):
    part = net()
    save_file(contents(part), tmp_path / "w.safetensors")
    model = nn.ModuleDict({"encoder": part, "head": nn.Linear(1, 2)})
    with pytest.raises(GpudocError) as problem:
        load_weights(model, Weights(file="w.safetensors"), tmp_path)
    assert "into: 'encoder.'" in problem.value.hint
    match = load_weights(model, Weights(file="w.safetensors", into="encoder.", strict=False), tmp_path)
    assert all_loaded(model["encoder"])
    assert match.missing == ("head.weight", "head.bias")
    assert "the file lacks head.weight, head.bias: left as the model initialises them" in match.sentences()


def test_without_strict_other_shapes_are_left_and_listed(tmp_path):
    save_file(contents(net(width=5)), tmp_path / "w.safetensors")
    model = net()
    with pytest.raises(GpudocError, match=r"other shapes: 0\.weight 5x2 for 3x2"):
        load_weights(model, Weights(file="w.safetensors"), tmp_path)
    match = load_weights(model, Weights(file="w.safetensors", strict=False), tmp_path)
    assert set(match.loaded) == {"1.num_batches_tracked", "2.bias"}
    assert "2.weight 1x5 for 1x3" in match.misshapen
    assert match.sentences()[-1].startswith("other shapes, not loaded: 0.weight 5x2 for 3x2, 0.bias 5 for 3")
    assert match.sentences()[-1].endswith(" and 1 more")


def test_a_tied_weight_stands_in_the_file_once(tmp_path):
    model = nn.ModuleDict({"embedding": nn.Embedding(4, 2), "head": nn.Linear(2, 4, bias=False)})
    model["head"].weight = model["embedding"].weight
    save_file({"embedding.weight": torch.full((4, 2), 7.0)}, tmp_path / "w.safetensors")
    assert load_weights(model, Weights(file="w.safetensors"), tmp_path).is_whole
    assert all_loaded(model)


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, line):
        self.line = line

    def __reduce__(self):
        return os.system, (self.line,)


@pytest.mark.parametrize("write", [torch.save, lambda thing, path: path.write_bytes(pickle.dumps(thing))])
def test_a_file_that_would_run_code_is_refused(tmp_path, write):
    write({"weight": torch.zeros(1), "other": Command(f"touch {tmp_path}/ran")}, tmp_path / "w.pt")
    with pytest.raises(GpudocError, match=r"w\.pt contains more than tensors|no file of torch\.save"):
        load_weights(net(), Weights(file="w.pt"), tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.safetensors", None, "does not exist"),
        ("w.safetensors", b"text", "cannot be read"),
        ("w.pt", b"text", "contains more than tensors|not a file of torch.save"),
        ("w.pt", b"", "not a file of torch.save"),
        ("model.safetensors.index.json", b"{}", "is not an index of weights"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "../a.safetensors"}}',
            "names a.safetensors, which is not",
        ),
    ],
)
def test_a_file_that_is_none_is_said_with_its_name(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GpudocError, match=says) as problem:
        load_weights(net(), Weights(file=name), tmp_path)
    assert name in problem.value.message


def test_a_file_and_a_folder_without_weights_are_said(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "w.pt")
    with pytest.raises(GpudocError, match="contains no named tensors"):
        load_weights(net(), Weights(file="w.pt"), tmp_path)
    with pytest.raises(GpudocError, match="contains no weights"):
        load_weights(net(), Weights(file="."), tmp_path)


def test_an_older_torch_reads_no_pickle_of_others_and_safetensors_as_ever(tmp_path, monkeypatch):
    model = net()
    torch.save(contents(model), tmp_path / "model.pt")
    save_file(contents(model), tmp_path / "model.safetensors")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(GpudocError, match=r"torch 2\.5\.1\+cu124 may run code while it reads such a file"):
        load_weights(net(), Weights(file="model.pt"), tmp_path)
    load_weights(net(), Weights(file="model.safetensors"), tmp_path)
