"""`make gpu-check` installs the build of PyTorch that the GPU and the driver run, by gpudoc's own tables."""

import pytest

from benchmarks.gpu_check import wheel
from gpudoc.doctor.model import Setting
from gpudoc.facts.model import Machine, TorchBuild


def chosen(capability, driver_cuda):
    return wheel.choose(Setting(capability=capability, driver_cuda=driver_cuda))


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "index"),
    [
        ((9, 0), (13, 0), "cu132"),
        # an H100 whose driver is of the 550s, and cards that CUDA 13 dropped
        ((9, 0), (12, 4), "cu129"),
        ((7, 0), (13, 0), "cu126"),
        ((6, 1), (13, 0), "cu126"),
    ],
)
def test_the_index_suits_the_card_and_the_driver(capability, driver_cuda, index):
    arguments = chosen(capability, driver_cuda).arguments
    assert arguments[-1].endswith(f"/{index}")
    assert arguments[0].startswith("torch==2.")
    assert not [word for word in arguments if word.startswith(("torchvision", "torchaudio"))]


def test_without_a_gpu_or_a_wheel_nothing_is_installed():
    assert chosen(None, None).arguments == ()
    assert "update the driver first" in chosen((12, 0), (11, 0)).reason


@pytest.mark.parametrize(
    ("built", "capability", "driver_cuda", "stays"),
    [
        ((13, 0), (9, 0), (13, 0), True),
        ((13, 0), (9, 0), (12, 4), False),
        ((13, 0), (7, 0), (13, 0), False),
        ((12, 6), (7, 0), (13, 0), True),
    ],
)
def test_a_torch_that_the_card_and_the_driver_run_stays(built, capability, driver_cuda, stays):
    machine = Machine(torch=TorchBuild(cuda_version=built))
    assert wheel.fits(machine, Setting(capability=capability, driver_cuda=driver_cuda)) is stays
    assert not wheel.fits(Machine(), Setting(capability=capability, driver_cuda=driver_cuda))


def test_where_an_index_lacks_the_pinned_release_the_newest_is_taken(monkeypatch):
    asked = []
    monkeypatch.setattr(wheel, "pip", lambda *words: asked.append(words) or len(asked) == 1)
    assert wheel.install(chosen((9, 0), (13, 0))) == 0
    assert [words[1].partition("==")[0] for words in asked] == ["torch", "torch"]
    assert asked[1][1] == "torch"
