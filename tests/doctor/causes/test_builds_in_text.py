from tests.doctor.causes.judge import first_is, ids, never, report_of, silent, verdict_is

HEAD = "Collecting environment information...\n"


def test_the_install_command_fits_packager_and_gpu():
    text = "uv pip install torch\nGPU 0: NVIDIA GeForce RTX 5090\nPyTorch version: 2.6.0+cpu\nNvidia driver version: 580.65.06\nIs CUDA available: False"
    (finding, *_) = report_of(text).findings
    assert finding.id == "cpu_only_torch"
    assert "uv pip install torch" in finding.fix[0].run
    assert "/whl/cu1" in finding.fix[0].run


def test_a_machine_without_a_gpu_that_nobody_misses_is_healthy():
    text = HEAD + (
        "PyTorch version: 2.13.0+cpu\nIs debug build: False\nCUDA used to build PyTorch: None\nIs CUDA available: False\n"
        "CUDA runtime version: No CUDA\nGPU models and configuration: No CUDA\nNvidia driver version: No CUDA\n"
        "Thread(s) per core: 1\nCaching allocator config: N/A\n[pip3] torch==2.13.0+cpu\n"
    )
    report = report_of(text)
    assert report.verdict == "healthy"
    assert [(f.id, f.severity) for f in report.findings] == [("cpu_only_torch", "info")]


DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb\nii  libnvidia-compute-550:amd64 {}-0ubuntu1\ntorch.cuda.is_available() gives False"
test_what_does_not_fit_together_is_named = first_is([
    ("driver_library_mismatch", DRIVER.format("550.90.07")),
    ("cpu_only_torch", HEAD + "PyTorch version: 2.4.1+cpu\nCUDA used to build PyTorch: Could not collect\nIs CUDA available: False\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 3060\nNvidia driver version: 560.81"),
    ("gpu_newer_than_wheel_archs", HEAD + "PyTorch version: 1.8.0\nCUDA used to build PyTorch: 10.2\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 3080\nRuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("gpu_older_than_wheel_archs", "Found GPU0 Tesla K40c which is of cuda capability 3.5.\nPyTorch no longer supports this GPU because it is too old."),
    ("gpu_older_than_wheel_archs", HEAD + "PyTorch version: 2.9.0+cu130\nCUDA used to build PyTorch: 13.0\nGPU models and configuration: GPU 0: Tesla V100-SXM2-32GB\nRuntimeError: CUDA error: no kernel image is available"),
    ("wrong_accelerator_build", HEAD + "PyTorch version: 2.3.0+rocm6.0\nROCM used to build PyTorch: 6.0.32830\nIs CUDA available: False\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 4090\nNvidia driver version: 550.54.14"),
    ("wrong_accelerator_build", "Radeon RX 6800 on Arch, installed with pip.\nError: no NVIDIA driver found on your system"),
    ("wrong_accelerator_build", "GPU models and configuration: AMD Vega 8\nCUDA driver version is insufficient for CUDA runtime version"),
])  # fmt: skip
test_what_fits_together_is_not_accused = never([
    ("driver_library_mismatch", DRIVER.format("550.54.14")),
    ("driver_library_mismatch", "libcuda reported version is: 470.57.2\nkernel reported version is: 470.57.02\nno cuda"),
    ("wrong_accelerator_build", "Radeon RX 6800\nno NVIDIA driver found, using ROCm\n>>> torch.cuda.is_available()\nTrue\nstep 10 loss 1.2"),  # an amd card that works beside an old message is not accused
])  # fmt: skip
test_what_is_no_fault_names_nothing = silent([
    "[    0.255134] deferred_init=lazy: 5361485 pages left to deferred_grow_zone()\n[    0.309400] iommu: Default domain type: Translated\n[    0.427962] Bridge firewalling registered\n[ 3410.049212]  __alloc_frozen_pages_noprof+0x32b/0x340\n[ 3410.05] workqueue: events hung\n",  # a plain kernel log blames no training
])  # fmt: skip
test_what_is_well_is_healthy = verdict_is(("healthy",), [
    HEAD + "PyTorch version: 2.4.1+cpu\nOS: Ubuntu 22.04\nPython version: 3.11.4",  # a build without cuda and no wish for one is no fault
])  # fmt: skip


def test_a_wheel_named_by_its_address_is_no_missing_index():
    address = "https://download.pytorch.org/whl/cu91"
    assert ids(f"pip install torch --index-url {address}\n") == ["cpu_only_torch"]
    assert ids(f"pip install {address}/torch-0.4.0-cp36-cp36m-linux_x86_64.whl\n") == []
