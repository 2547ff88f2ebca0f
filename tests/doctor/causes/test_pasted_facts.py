from tests.doctor.causes.judge import first_is, never, report_of, silent, unbroken

TABLE = """| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |             {ecc:>8} |
| N/A   33C    P0             61W /  400W |      87MiB /  81920MiB |     N/A      Default |
|                                         |                        | {mig:>20} |
{between}
| Processes:                                                                              |
|  No running processes found                                                             |
"""
SLICES = """| MIG devices:                                                                            |
| GPU  GI  CI  MIG |                                   Memory-Usage |        Vol|      Shared           |
|  0    7   0   0  |              12MiB /  9728MiB    | 14      0 |  1   0    0    0    0 |"""


NODES = (
    "$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl  /dev/nvidia-modeset{more}\n>>> torch.cuda.is_available()\nFalse"
)


def test_the_cards_of_the_table_are_those_with_errors():
    row = "|   {}  NVIDIA A100-SXM4-40GB          On  | 00000000:{}:00.0 Off |                   {} |"
    table = "\n".join(row.format(i, place, count) for i, (place, count) in enumerate((("07", 0), ("0B", 3), ("48", 2))))
    finding = next(f for f in report_of(f"NVIDIA-SMI 535.54.03\n{table}").findings if f.id == "gpu_ecc_error")
    assert [card.pci_address for card in finding.cards] == ["0000:0b:00.0", "0000:48:00.0"]
    assert any("-i 0000:0b:00.0,0000:48:00.0" in step.run for step in finding.fix)


DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb\nii  libnvidia-compute-550:amd64 {}-0ubuntu1\ntorch.cuda.is_available() gives False"
test_what_a_table_or_a_list_shows_is_the_cause = first_is([
    ("gpu_ecc_error", TABLE.format(ecc=3, mig="Disabled", between="")),  # errors in the tables ecc column
    ("mig_enabled_no_instance", TABLE.format(ecc=0, mig="Enabled", between="")),  # mig without the table of its devices
    ("driver_library_mismatch", DRIVER.format("550.90.07")),
    ("no_gpu_on_machine", 'File "/content/run/main.py", line 3\nRuntimeError: Found no NVIDIA driver on your system.'),
    ("no_gpu_on_machine", 'File "/kaggle/working/t.py", line 3\nRuntimeError: No CUDA GPUs are available'),
    ("no_gpu_on_machine", "00:02.0 VGA compatible controller: Cirrus Logic GD 5446\nnvidia-smi: command not found"),
    ("container_without_gpu_access", "trainer_1  | RuntimeError: Found no NVIDIA driver on your system.\nproject_trainer_1 exited with code 1"),
    ("container_without_gpu_access", "root@3f2a9c1b7d5e:/app# nvidia-smi\nbash: nvidia-smi: command not found"),
    ("wsl_windows_or_kernel_too_old", "WSL2 on Windows 10 (OS build 19042.1052): torch cannot find the GPU"),
    ("wsl_windows_or_kernel_too_old", "WSL, Windows build 20161 insider: RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("wsl_windows_or_kernel_too_old", "WSL uname -r: 5.10.16.3-microsoft-standard-WSL2, cuda is not available in torch"),
    ("wsl_windows_or_kernel_too_old", "WSL uname -r: 5.4.72-microsoft-standard, cuda is not available in torch"),
    ("vgpu_unlicensed", "VM with GRID T4-16Q: fast for the first 20 minutes, then ten times slower"),  # a virtual gpu that is held back
    ("vgpu_unlicensed", "| 0  NVIDIA A40-8C | after a while each kernel takes 100x longer"),  # a virtual gpu that is held back
    ("vgpu_unlicensed", "A16-2B: all CUDA-capable devices are busy or unavailable"),  # a virtual gpu that is held back
])  # fmt: skip
test_the_same_table_of_a_machine_that_is_well_names_nothing = never([
    ("mig_enabled_no_instance", TABLE.format(ecc=0, mig="Enabled", between=SLICES)),  # mig with its devices is well
    ("nvidia_uvm_missing", NODES.format(more="  /dev/nvidia-uvm  /dev/nvidia-uvm-tools")),  # device files without the one that cuda needs
    ("nvidia_uvm_missing", "nvidia_drm 69632 4\nnvidia_modeset 1146880 3 nvidia_drm\nnvidia 40800256 1 nvidia_uvm, nvidia_modeset\ncuda is not working"),  # loaded modules without the one that cuda needs
    ("driver_library_mismatch", "libcuda reported version is: 470.57.2\nkernel reported version is: 470.57.02\nno cuda"),  # a short version is the same version
    ("driver_library_mismatch", DRIVER.format("550.54.14")),
    ("no_gpu_on_machine", "VGA compatible controller: ASPEED\n3D controller: NVIDIA Corporation GA100\nRuntimeError: Found no NVIDIA driver"),  # a card in the same list is a gpu
    ("wsl_windows_or_kernel_too_old", "WSL2 on Windows 11 (OS build 22631.3593): torch cannot find the GPU"),
    ("wsl_windows_or_kernel_too_old", "WSL uname -r: 5.10.102.1-microsoft-standard-WSL2, cuda is not available in torch"),
    ("wsl_windows_or_kernel_too_old", "I am not using WSL. Windows 10 build 19042, torch cannot find the GPU"),
    ("wsl_windows_or_kernel_too_old", "Not running on WSL. Windows 10 build 19042, torch cannot find the GPU"),
    ("wsl_windows_or_kernel_too_old", "Windows 10 build 19042, no subsystem: torch cannot find the GPU"),
    ("wsl_windows_or_kernel_too_old", "WSL2, Windows build 19042: torch.cuda.is_available() True, step 3 loss 0.2"),
    ("vgpu_unlicensed", "NVIDIA A40: fast for the first 20 minutes, then twice slower, 88 C"),  # a whole card that is slow is another matter
    ("vgpu_unlicensed", "HAMi vgpu scheduler on k8s: pods get slow after some minutes"),  # a whole card that is slow is another matter
    ("device_permission_denied", "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\nloss 0.1"),  # device files for a group
])  # fmt: skip
test_a_healthy_table_names_nothing_broken = silent(
    [TABLE.format(ecc=0, mig="Disabled", between="") + "step 10 loss 0.5"], seen=unbroken
)
