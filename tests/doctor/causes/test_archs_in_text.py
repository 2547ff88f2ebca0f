from tests.doctor.causes.judge import first_is, ids, never, verdict_is

test_which_end_of_the_list_the_card_is_beyond = first_is([
    ("gpu_newer_than_wheel_archs", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("gpu_older_than_wheel_archs", "Tesla P100, torch 2.8.0+cu128\ncudaErrorNoKernelImageForDevice: no kernel image is available"),
    ("gpu_newer_than_wheel_archs", "RTX 5090\nRuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("gpu_older_than_wheel_archs", "GTX 980\nRuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("gpu_newer_than_wheel_archs", "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'"),
    ("gpu_newer_than_wheel_archs", "nvcc fatal   : Unsupported gpu architecture 'compute_89'"),
    ("gpu_older_than_wheel_archs", "torch._inductor.exc: Triton only supports devices of CUDA Capability >= 7.0, but your device is of CUDA capability 6.1"),
    ("gpu_newer_than_wheel_archs", "If you want to use the NVIDIA GeForce RTX 4080 GPU with PyTorch, please check the instructions at https://pytorch.org/get-started/locally/"),
    ("gpu_older_than_wheel_archs", "The prebuilt torch 2.8 binaries dropped support for Maxwell, my GTX 970 fails now"),
    ("gpu_older_than_wheel_archs", "Radeon RX 580 with ROCm 6.2\nRuntimeError: HIP error: invalid device function"),
    ("extension_missing_arch", "RTX 4090, torch 2.1.0+cu121\n  out = _ext.sample(x)\nRuntimeError: CUDA error: no kernel image is available for execution on the device"),  # a card that the wheel fits points at what was built beside it
    ("gpu_newer_than_wheel_archs", "RTX 5090, CUDA 11.3, Pytorch 1.12.1\nRuntimeError: no kernel image is available for execution on the device"),  # the cuda named beside torch counts where its own was only concluded
])  # fmt: skip
test_a_card_that_the_stated_cuda_knows_is_not_too_new = never([
    ("gpu_newer_than_wheel_archs", "RTX 3090, CUDA 11.3, Pytorch 1.12.1\nRuntimeError: no kernel image is available for execution on the device"),  # the cuda named beside torch counts where its own was only concluded
])  # fmt: skip
test_nor_is_it_mentioned = never([
    ("gpu_newer_than_wheel_archs", "pytorch 1.11 on an A100: which batch size do you use?"),  # a wheel guessed from its version accuses nobody where nothing fails
    ("gpu_newer_than_wheel_archs", "RTX 5090 (Blackwell, sm_120), driver 595.58, epoch 1 loss 0.3"),  # a name of a generation is no lack
], seen=ids)  # fmt: skip
test_what_is_well_is_healthy = verdict_is(("healthy",), [
    "PyTorch version: 2.6.0+cu126\nIs CUDA available: True\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 4090",  # a card that the wheel has code for is no fault
])  # fmt: skip
