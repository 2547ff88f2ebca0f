import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.workload.config import load_config
from gpudoc.workload.images import CLASSES, ImageFolder, build_model, draw_once, draw_picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc.workload.images", str(root), "--per-class", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{5 * len(CLASSES)} pictures" in done.stderr
    return root


def test_the_command_draws_a_folder_with_a_held_out_part(folder):
    assert len(ImageFolder(str(folder / "train"))) == 4 * len(CLASSES)
    assert len(ImageFolder(str(folder / "held_out"))) == len(CLASSES)


def test_a_sample_is_a_normalised_picture_and_its_class(folder):
    image, label = ImageFolder(str(folder / "train"), size=32)[0]
    assert image.shape == (3, 32, 32)
    assert image.dtype == torch.float32
    assert -1 <= image.min() < image.max() <= 1
    assert label == 0


def test_augmentation_draws_from_torchs_generator_only(folder):
    data = ImageFolder(str(folder / "train"), size=32)
    torch.manual_seed(3)
    first = data[1][0]
    other = data[1][0]
    torch.manual_seed(3)
    assert data[1][0].equal(first)
    assert not other.equal(first)


def test_without_augmentation_a_picture_is_always_the_same(folder):
    data = ImageFolder(str(folder / "held_out"), size=32, augment=False)
    assert data[2][0].equal(data[2][0])


def test_a_missing_folder_says_how_to_make_one():
    with pytest.raises(GpudocError) as caught:
        ImageFolder("nowhere/train")
    assert caught.value.hint == "python -m gpudoc.workload.images nowhere"


def test_the_built_in_workload_draws_its_folder_where_it_is_missing_and_leaves_one_that_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpudoc.workload.images._FEW_PER_CLASS", 5)
    loaded = load_config("images").config
    train, held_out = ImageFolder(**loaded.data.args), ImageFolder(**loaded.data.eval.args)
    assert (len(train), len(held_out)) == (4 * len(CLASSES), len(CLASSES))
    assert [path.name for path in tmp_path.iterdir()] == ["images-data"]
    mine = next((tmp_path / "images-data/train/ring").iterdir())
    mine.write_bytes(b"mine")
    draw_once(Path("images-data"))
    assert mine.read_bytes() == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == ["images-data"]
    with pytest.raises(GpudocError, match="no such folder of images"):
        ImageFolder("images-data/tarin")


@pytest.mark.parametrize("label", CLASSES)
def test_every_shape_differs_from_its_background(label):
    drawn = draw_picture(label, 64, random.Random(5))
    assert drawn.size == (64, 64)
    assert len(set(drawn.getdata() if not hasattr(drawn, "get_flattened_data") else drawn.get_flattened_data())) > 10


def test_the_net_has_one_output_per_class(folder):
    model = build_model(ImageFolder(str(folder / "train"), size=32), width=4)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, len(CLASSES))
