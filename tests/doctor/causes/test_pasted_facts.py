from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of


def named(text: str) -> list[str]:
    """The causes that are found, without the guesses by topic."""
    return [finding.id for finding in report_of(text).findings if finding.severity != "info"]


TABLE = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |             {ecc:>8} |
| N/A   33C    P0             61W /  400W |      87MiB /  81920MiB |     N/A      Default |
|                                         |                        | {mig:>20} |
+-----------------------------------------+------------------------+----------------------+
{between}
| Processes:                                                                              |
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""
SLICES = """| MIG devices:                                                                            |
| GPU  GI  CI  MIG |                                   Memory-Usage |        Vol|      Shared           |
|  0    7   0   0  |              12MiB /  9728MiB    | 14      0 |  1   0    0    0    0 |"""


def test_errors_in_the_tables_ecc_column():
    assert first(TABLE.format(ecc=3, mig="Disabled", between="")) == "gpu_ecc_error"


def test_a_healthy_table_names_nothing():
    text = TABLE.format(ecc=0, mig="Disabled", between="") + "step 10 loss 0.5"
    assert not [f for f in report_of(text).findings if f.severity == "broken"]


def test_mig_without_the_table_of_its_devices():
    assert first(TABLE.format(ecc=0, mig="Enabled", between="")) == "mig_enabled_no_instance"


def test_mig_with_its_devices_is_well():
    assert "mig_enabled_no_instance" not in named(TABLE.format(ecc=0, mig="Enabled", between=SLICES))


NODES = (
    "$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl  /dev/nvidia-modeset{more}\n>>> torch.cuda.is_available()\nFalse"
)


def test_device_files_without_the_one_that_cuda_needs():
    assert first(NODES.format(more="")) == "nvidia_uvm_missing"
    assert "nvidia_uvm_missing" not in named(NODES.format(more="  /dev/nvidia-uvm  /dev/nvidia-uvm-tools"))


def test_devices_handed_on_one_by_one():
    text = (
        "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind\n"
        "nvidia-smi works in the box, torch.cuda.is_available() is False"
    )
    assert first(text) == "nvidia_uvm_missing"


def test_loaded_modules_without_the_one_that_cuda_needs():
    loaded = "nvidia_drm 69632 4\nnvidia_modeset 1146880 3 nvidia_drm\nnvidia 40800256 1{} nvidia_modeset\ncuda is not working"
    assert first(loaded.format("")) == "nvidia_uvm_missing"
    assert "nvidia_uvm_missing" not in named(loaded.format(" nvidia_uvm,"))


@pytest.mark.parametrize(
    ("kernel", "library", "wrong"), [("550.54.14", "550.90.07", True), ("550.54.14", "550.54.14", False)]
)
def test_two_versions_of_one_driver(kernel, library, wrong):
    text = (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {kernel}  Thu Feb\n"
        f"ii  libnvidia-compute-550:amd64 {library}-0ubuntu1\ntorch.cuda.is_available() gives False"
    )
    assert ("driver_library_mismatch" in named(text)) is wrong


def test_a_short_version_is_the_same_version():
    text = "libcuda reported version is: 470.57.2\nkernel reported version is: 470.57.02\nno cuda"
    assert "driver_library_mismatch" not in named(text)


HOSTED = [
    'File "/content/run/main.py", line 3\nRuntimeError: Found no NVIDIA driver on your system.',
    'File "/kaggle/working/t.py", line 3\nRuntimeError: No CUDA GPUs are available',
    "00:02.0 VGA compatible controller: Cirrus Logic GD 5446\nnvidia-smi: command not found",
]


@pytest.mark.parametrize("text", HOSTED)
def test_where_it_runs_has_no_gpu(text):
    assert first(text) == "no_gpu_on_machine"


def test_a_card_in_the_same_list_is_a_gpu():
    text = "VGA compatible controller: ASPEED\n3D controller: NVIDIA Corporation GA100\nRuntimeError: Found no NVIDIA driver"
    assert first(text) != "no_gpu_on_machine"


INSIDE = [
    "trainer_1  | RuntimeError: Found no NVIDIA driver on your system.\nproject_trainer_1 exited with code 1",
    "root@3f2a9c1b7d5e:/app# nvidia-smi\nbash: nvidia-smi: command not found",
]


@pytest.mark.parametrize("text", INSIDE)
def test_marks_of_a_container(text):
    assert first(text) == "container_without_gpu_access"


OLD_WINDOWS = [
    "WSL2 on Windows 10 (OS build 19042.1052): torch cannot find the GPU",
    "WSL, Windows build 20161 insider: RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
    "CUDA not working on WSL2, Windows 10 build 19041",
    "WSL uname -r: 5.10.16.3-microsoft-standard-WSL2, cuda is not available in torch",
    "WSL uname -r: 5.4.72-microsoft-standard, cuda is not available in torch",
]


@pytest.mark.parametrize("text", OLD_WINDOWS)
def test_windows_and_kernels_from_before_gpus(text):
    assert first(text) == "wsl_windows_or_kernel_too_old"


@pytest.mark.parametrize(
    "text",
    [
        "WSL2 on Windows 11 (OS build 22631.3593): torch cannot find the GPU",
        "WSL uname -r: 5.10.102.1-microsoft-standard-WSL2, cuda is not available in torch",
        "I am not using WSL. Windows 10 build 19042, torch cannot find the GPU",
        "Not running on WSL. Windows 10 build 19042, torch cannot find the GPU",
        "Windows 10 build 19042, no subsystem: torch cannot find the GPU",
        "WSL2, Windows build 19042: torch.cuda.is_available() True, step 3 loss 0.2",
    ],
)
def test_other_windows(text):
    assert "wsl_windows_or_kernel_too_old" not in named(text)


def test_a_virtual_gpu_that_is_held_back():
    assert first("VM with GRID T4-16Q: fast for the first 20 minutes, then ten times slower") == "vgpu_unlicensed"
    assert first("| 0  NVIDIA A40-8C | after a while each kernel takes 100x longer") == "vgpu_unlicensed"
    assert first("A16-2B: all CUDA-capable devices are busy or unavailable") == "vgpu_unlicensed"


def test_a_whole_card_that_is_slow_is_another_matter():
    assert "vgpu_unlicensed" not in named("NVIDIA A40: fast for the first 20 minutes, then twice slower, 88 C")
    assert "vgpu_unlicensed" not in named("HAMi vgpu scheduler on k8s: pods get slow after some minutes")


def test_device_files_for_a_group():
    assert first("crw-rw---- 1 root root 195, 0 /dev/nvidia0\ntorch: no cuda device") == "device_permission_denied"
    assert first("options nvidia NVreg_DeviceFileMode=0660, regular users get no GPU") == "device_permission_denied"
    assert "device_permission_denied" not in named("crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\nloss 0.1")


def test_the_cards_of_the_table_are_those_with_errors():
    row = "|   {}  NVIDIA A100-SXM4-40GB          On  | 00000000:{}:00.0 Off |                   {} |"
    table = "\n".join(row.format(i, place, count) for i, (place, count) in enumerate((("07", 0), ("0B", 3), ("48", 2))))
    finding = next(f for f in report_of(f"NVIDIA-SMI 535.54.03\n{table}").findings if f.id == "gpu_ecc_error")
    assert [card.pci_address for card in finding.cards] == ["0000:0b:00.0", "0000:48:00.0"]
    assert any("-i 0000:0b:00.0,0000:48:00.0" in step.run for step in finding.fix)
