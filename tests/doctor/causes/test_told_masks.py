from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("visible_devices_set_too_late", "I wrote os['CUDA_VISIBLE_DEVICES'] = '3' into the script. It changes nothing, the first card is taken."),
    ("visible_devices_set_too_late", "job.env_set: CUDA_VISIBLE_DEVICES: 2,3 is ignored, the model is loaded to 0 and 1; CUDA_VISIBLE_DEVICES=2,3 python run.py is right"),
    ("visible_devices_set_too_late", "Setting CUDA_VISIBLE_DEVICES in the notebook does not work for me, torch still sees all four cards"),
    ("visible_devices_set_too_late", "在代码里写了 os.environ['CUDA_VISIBLE_DEVICES'] = '1' 但是不起作用"),
    ("visible_devices_set_too_late", "Why can't I choose the card with os.environ['CUDA_VISIBLE_DEVICES']='2'?"),
    ("visible_devices_set_too_late", "gpu_devices = 1 is ignored, it runs on all gpus; CUDA_VISIBLE_DEVICES changes nothing"),
    ("visible_devices_hides_gpu", "GPU_ID=1 stands in train.sh\nno CUDA-capable device is detected"),
    ("invalid_device_ordinal", "The config has gpus: 1, I have only one gpu, so it does not work"),
    ("visible_devices_hides_gpu", "run.py has os.environ['CUDA_VISIBLE_DEVICES'] = '3' and the laptop says RuntimeError: No CUDA GPUs are available"),
    ("visible_devices_hides_gpu", "CUDA_VISIBLE_DEVICES=$0 python demo.py\nno CUDA-capable device is detected"),
    ("visible_devices_hides_gpu", "The service sets CUDA_VISIBLE_DEVICES=1 for its workers, there torch.cuda.is_available() == False"),
    ("visible_devices_hides_gpu", "python main.py --gpu_ids 2\nRuntimeError: No CUDA GPUs are available"),
    ("invalid_device_ordinal", "It ends with invalid device ordinnal on my laptop"),
    ("visible_devices_hides_gpu", "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\ncuda_diagnostics.cc:310] kernel version seems to match DSO: 410.129.0"),
    ("invalid_device_ordinal", "ValueError: No slot '5' specified on host 'localhost'"),
    ("invalid_device_ordinal", "InvalidArgumentError: Could not satisfy explicit device specification '/device:GPU:3'"),
    ("invalid_device_ordinal", "requested 8 gpus, but there are only 4 available on this node"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_who_may_see_which_device(cause, text):
    assert first(text) == cause, [(f.id, f.confidence, f.severity) for f in report_of(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '2' stands at the top of train.py, epoch 1 loss 0.3",
        "CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 train.py\nstep 10 loss 0.31",
        "CUDA_VISIBLE_DEVICES=0 python train.py\nRuntimeError: No CUDA GPUs are available",
        "CUDA_VISIBLE_DEVICES=1 python x.py\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver\nNo CUDA GPUs are available",
        "CUDA_VISIBLE_DEVICES=1.5 is no index",
    ],
)
def test_a_mask_that_is_not_the_cause(text):
    assert not [
        f.id for f in report_of(text).findings if f.id.startswith("visible_devices") and f.severity == "broken"
    ], ids(text)


def test_a_mask_that_the_listed_gpus_cover_is_not_the_cause():
    listing = "".join(f"GPU {i}: NVIDIA A100-SXM4-80GB\n" for i in range(3))
    text = f"PyTorch version: 2.4.0\nGPU models and configuration: \n{listing}Nvidia driver version: 550.54.15\n"
    masked = text + "CUDA_VISIBLE_DEVICES=%s python x.py\nRuntimeError: No CUDA GPUs are available"
    assert "visible_devices_hides_gpu" not in [f.id for f in report_of(masked % 1).findings if f.severity == "broken"]
    assert first(masked % 7) == "visible_devices_hides_gpu"
