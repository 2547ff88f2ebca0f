import pytest

from gpudoc.doctor.causes.visibility import read_mask
from gpudoc.facts.model import Absent
from tests.doctor.causes.judge import first_is, never, verdict_is
from tests.machines.built import gpu


@pytest.mark.parametrize(
    ("mask", "chosen", "wrong"),
    [
        ("1, 0", [1, 0], ""),
        ("0,7,1", [0], "7"),
        ("1,0,1", [1, 0], "1"),
        ("GPU-00000001,0", [1, 0], ""),
        ("GPU-0,1", [], "GPU-0"),
        ("MIG-abc,1", [1], ""),
    ],
)
def test_a_mask_is_read_up_to_its_first_wrong_entry(mask, chosen, wrong):
    named, first_wrong = read_mask(mask, (gpu(0), gpu(1)))
    assert ([one.index for one in named], first_wrong) == (chosen, wrong)


def test_an_identity_cannot_be_wrong_where_none_is_known():
    assert read_mask("GPU-9,0", (gpu(0, uuid=Absent("not read")),)) == ((gpu(0, uuid=Absent("not read")),), "")


test_who_sees_which_device = first_is([
    ("visible_devices_set_too_late", "os.environ['CUDA_VISIBLE_DEVICES'] = '3' stands below import torch, it consistently uses GPU 0"),
    ("visible_devices_hides_gpu", "export CUDA_VISIBLE_DEVICES=\n>>> torch.cuda.is_available()\nFalse"),
    ("visible_devices_hides_gpu", "$CUDA_VISIBLE_DEVICES is set to -1 in my terminal, torch.cuda.device_count() returns 0, nvidia-smi shows the A40"),
    ("visible_devices_hides_gpu", "CUDA_VISIBLE_DEVICES=-1 python train.py\nRuntimeError: No CUDA GPUs are available"),
    ("visible_devices_hides_gpu", "nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-1c)\nCUDA_VISIBLE_DEVICES=1 python t.py\nRuntimeError: No CUDA GPUs are available"),
    ("visible_devices_set_too_late", "import torch\nprint(torch.cuda.device_count())\nos.environ['CUDA_VISIBLE_DEVICES'] = '2'\nstill uses GPU 0"),
    ("visible_devices_hides_gpu", 'services:\n  trainer:\n    environment:\n      CUDA_VISIBLE_DEVICES: "-1"\nRuntimeError: No CUDA GPUs are available'),
    ("driver_missing_or_not_loaded", "$ CUDA_VISIBLE_DEVICES=1 python fit.py\nerror=38 : no CUDA-capable device is detected\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),  # a mask is not blamed for a driver that does not answer
])  # fmt: skip
test_work_of_the_cpu_beside_a_gpu_is_not_training_on_the_cpu = never([
    ("training_on_cpu", "my GPU runs at 40% in training and only one CPU thread is busy, on CPU 95%"),  # a gpu that is in use is not training on the cpu
    ("training_on_cpu", "With augmentation the CPU usage is 100 % and the GPU is bored while I train"),  # a cpu that augments is not the device of the model
    ("training_on_cpu", "My small net is faster on the CPU than on the GPU (RTX 3060), is that normal for training?"),  # a comparison with the cpu is not work on the cpu
])  # fmt: skip
test_what_is_well_is_healthy = verdict_is(("healthy",), [
    "CUDA_VISIBLE_DEVICES=0 python train.py\nGPU 0: NVIDIA L4 (UUID: GPU-1c)\nGPU 1: NVIDIA L4 (UUID: GPU-2c)\nstep 10 loss 2.1",  # a mask that leaves a gpu is no fault
    "I have no GPU in this notebook and train the tutorial on it\nepoch 1 loss 2.2\nepoch 2 loss 1.9",  # someone without a gpu who wants none has no fault
])  # fmt: skip
