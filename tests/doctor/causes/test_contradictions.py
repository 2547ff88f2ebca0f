"""Two statements of one text that cannot both be, and the same statements where they can."""

import pytest

from gpudoc.doctor.causes import contradictions
from tests.doctor.causes.judge import told

NONE_LEFT = "\nRuntimeError: No CUDA GPUs are available"
LISTED = "GPU models and configuration: \n" + "".join(f"GPU {i}: NVIDIA A100-SXM4-40GB\n" for i in range(3))
OFFERED = "nvidia-smi says CUDA Version: {}, I have torch {} and torch.cuda.is_available() is {}"
NO_KERNEL = "no kernel image is available for execution on the device"
MACOS = "torch {} on macOS {}, torch.backends.mps.is_available() is False"
BF16 = "training_args: bf16: true, on a {}, it fails after 100 steps"

HIDDEN, OLD, MAC, NO_BF16 = (
    ("visible_devices_hides_gpu", "broken"), ("driver_too_old", "broken"), ("mps_macos_too_old", "broken"),
    ("bf16_unsupported_gpu", "warning"),
)  # fmt: skip
APART = [
    # a mask beyond the devices, and none left
    (HIDDEN, "os.environ['CUDA_VISIBLE_DEVICES'] = '3'" + NONE_LEFT),
    (HIDDEN, "The service sets CUDA_VISIBLE_DEVICES to 1 for its workers" + NONE_LEFT),
    (HIDDEN, "CUDA_VISIBLE_DEVICES=-1 python demo.py\nno CUDA-capable device is detected"),
    (HIDDEN, "python main.py --gpu_ids 2" + NONE_LEFT),
    (HIDDEN, "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\ncuda_diagnostics.cc:310] kernel version seems to match DSO: 410.129.0"),
    (None, "CUDA_VISIBLE_DEVICES=0 python train.py" + NONE_LEFT),
    (None, "os.environ['CUDA_VISIBLE_DEVICES'] = '2' stands at the top of train.py, epoch 1 loss 0.3"),
    (None, "CUDA_VISIBLE_DEVICES=1 python x.py\nNVIDIA-SMI has failed because it couldn't communicate with the driver" + NONE_LEFT),
    (None, "CUDA_VISIBLE_DEVICES=1.5 is no index" + NONE_LEFT),
    # a mask against the GPUs that are listed
    (None, f"{LISTED}CUDA_VISIBLE_DEVICES=1 python x.py{NONE_LEFT}"),
    (HIDDEN, f"{LISTED}CUDA_VISIBLE_DEVICES=7 python x.py{NONE_LEFT}"),
    # the CUDA that nvidia-smi is quoted with against the build; of one major version any driver is new enough
    (OLD, OFFERED.format("10.1", "2.0 cu118", False)),
    (OLD, OFFERED.format("11.4", "2.5.1+cu124", False)),
    (None, OFFERED.format("12.0", "2.5.1+cu124", False)),
    (None, OFFERED.format("10.1", "2.0 cu118", True)),
    # a missing kernel in a source that is none of torch's
    (("extension_missing_arch", "broken"), f"CUDA kernel failed : {NO_KERNEL}\nvoid ball_query(int) at L:40 in /src/ops/ball_query_gpu.cu"),
    (None, f"{NO_KERNEL} (launch_kernel at /opt/conda/conda-bld/pytorch_157/work/aten/src/ATen/native/cuda/Loops.cuh:102)"),
    # MPS against the macOS that this torch wants
    (MAC, MACOS.format("2.5.1", "12.6")),
    (None, MACOS.format("2.4.0", "12.6")),
    (MAC, MACOS.format("2.4.0", "12.2")),
    (None, MACOS.format("2.5.1", "14.4")),
    # bf16 against the capability of the card
    (NO_BF16, BF16.format("Quadro RTX 6000")),
    (NO_BF16, BF16.format("Tesla V100")),
    (None, BF16.format("NVIDIA A100")),
    (None, "bf16: true on a Tesla V100, loss 0.4"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "text"), APART)
def test_what_is_stated_is_held_against_what_else_is_stated(expected, text):
    found = [(one.id, one.severity) for one in told(contradictions.FINDERS, text)]
    assert found == ([expected] if expected else [])
