"""Two statements of one text that cannot both be, and the same statements where they can."""

from __future__ import annotations

import pytest

from gpudoc.doctor.causes import compared
from gpudoc.doctor.model import Evidence
from gpudoc.facts.readers import read


def found(text: str) -> list[tuple[str, str]]:
    reading = read(text)
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    return [(one.id, one.severity) for finder in compared.FINDERS for one in finder.find(evidence)]


NONE_LEFT = "\nRuntimeError: No CUDA GPUs are available"
HIDDEN = [("visible_devices_hides_gpu", "broken")]


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '3'" + NONE_LEFT,
        "The service sets CUDA_VISIBLE_DEVICES to 1 for its workers" + NONE_LEFT,
        "CUDA_VISIBLE_DEVICES=-1 python demo.py\nno CUDA-capable device is detected",
        "python main.py --gpu_ids 2" + NONE_LEFT,
        "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\ncuda_diagnostics.cc:310] kernel version seems to match DSO: 410.129.0",
    ],
)
def test_a_mask_beyond_the_devices_and_none_left(text):
    assert found(text) == HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "CUDA_VISIBLE_DEVICES=0 python train.py" + NONE_LEFT,
        "os.environ['CUDA_VISIBLE_DEVICES'] = '2' stands at the top of train.py, epoch 1 loss 0.3",
        "CUDA_VISIBLE_DEVICES=1 python x.py\nNVIDIA-SMI has failed because it couldn't communicate with the driver"
        + NONE_LEFT,
        "CUDA_VISIBLE_DEVICES=1.5 is no index" + NONE_LEFT,
    ],
)
def test_a_mask_that_is_not_the_cause(text):
    assert found(text) == []


def test_a_mask_is_held_against_the_gpus_that_are_listed():
    listing = "".join(f"GPU {i}: NVIDIA A100-SXM4-80GB\n" for i in range(3))
    text = f"GPU models and configuration: \n{listing}CUDA_VISIBLE_DEVICES=%s python x.py{NONE_LEFT}"
    assert found(text % 1) == []
    assert found(text % 7) == HIDDEN


def test_the_cuda_that_nvidia_smi_is_quoted_with_is_held_against_the_build():
    text = "nvidia-smi says CUDA Version: {offered}, I have torch {built} and torch.cuda.is_available() is False"
    assert found(text.format(offered="10.1", built="2.0 cu118")) == [("driver_too_old", "broken")]
    assert found(text.format(offered="11.4", built="2.5.1+cu124")) == [("driver_too_old", "broken")]
    # of one major version any driver is new enough
    assert found(text.format(offered="12.0", built="2.5.1+cu124")) == []
    assert found(text.format(offered="10.1", built="2.0 cu118").replace("False", "True")) == []


def test_the_driver_that_is_wanted_is_held_against_the_one_that_is_there():
    text = (
        "Our image requires driver {wanted} and fails with an error on the old machines, which have driver 470.223.02"
    )
    assert found(text.format(wanted=535)) == [("driver_too_old", "broken")]
    assert found(text.format(wanted=450)) == []


def test_a_missing_kernel_in_a_source_that_is_none_of_torchs():
    said = "no kernel image is available for execution on the device"
    assert found(f"CUDA kernel failed : {said}\nvoid ball_query(int) at L:40 in /src/ops/ball_query_gpu.cu") == [
        ("extension_missing_arch", "broken")
    ]
    assert (
        found(
            f"{said} (launch_kernel at /opt/conda/conda-bld/pytorch_157/work/aten/src/ATen/native/cuda/Loops.cuh:102)"
        )
        == []
    )


def test_mps_is_held_against_the_macos_that_this_torch_wants():
    text = "torch {torch} on macOS {macos}, torch.backends.mps.is_available() is False"
    assert found(text.format(torch="2.5.1", macos="12.6")) == [("mps_macos_too_old", "broken")]
    assert found(text.format(torch="2.4.0", macos="12.6")) == []
    assert found(text.format(torch="2.4.0", macos="12.2")) == [("mps_macos_too_old", "broken")]
    assert found(text.format(torch="2.5.1", macos="14.4")) == []


def test_bf16_is_held_against_the_capability_of_the_card():
    text = "training_args: bf16: true, on a {card}, it fails after 100 steps"
    assert found(text.format(card="Quadro RTX 6000")) == [("bf16_unsupported_gpu", "warning")]
    assert found(text.format(card="Tesla V100")) == [("bf16_unsupported_gpu", "warning")]
    assert found(text.format(card="NVIDIA A100")) == []
    assert found("bf16: true on a Tesla V100, loss 0.4") == []
