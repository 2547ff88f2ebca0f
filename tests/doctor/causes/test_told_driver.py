from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("fabric_manager_not_running", "cupy: cuInit(0) failed, returned 802 on a DGX with A100-SXM4"),
    ("fabric_manager_not_running", "F0101 check.cc:12] Check failed: status == CUDA_SUCCESS (802 vs. 0) on our HGX box"),
    ("fabric_manager_not_running", "[802] Call to cuDeviceGetCount results in an error, eight H100 SXM"),
    ("fabric_manager_not_running", "CUDA is dead on the new node: the fabric manager crashes at once, torch fails to initialize"),
    ("mps_daemon_unreachable", "cuInit failed with error code 806 when the second worker starts"),
    ("mps_daemon_unreachable", "With export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps2 every client we start fails with cublas handle errors"),
    ("forward_compat_on_consumer_gpu", "ffmpeg: cuInit(0) failed -> error 804"),
    ("gpu_ecc_error", "cudaGetDeviceProperties returned error 214 this morning, the V100 worked yesterday"),
    ("driver_too_old", "cudaGetDeviceCount() failed. Status: 35"),
    ("libcuda_stub_loaded", "RuntimeError: cuInit: CUDA driver is a stub library"),
    ("gpu_fallen_off_bus", "Our PyTorch jobs die about once a day. The admin sees Xids 79 in the log of that node."),
    ("gpu_ecc_error", "training stops, and there are Xid events 48 on gpu 3"),
    ("driver_missing_or_not_loaded", "Since the kernel upgrade last night I cannot get the nvidia card to run any more"),
    ("driver_missing_or_not_loaded", "pacman -Syu installed linux kernel 6.9; now nvidia drivers do not load and torch finds nothing, "
     "it broke after this system update"),
    ("driver_missing_or_not_loaded", "$ dkms status\nnvidia/550.54.14: added\n$ python train.py\nno gpu"),
    ("driver_missing_or_not_loaded", "modinfo: ERROR: Module nvidia not found.\ntorch says no cuda"),
    ("driver_missing_or_not_loaded", "==> ERROR: module not found: 'nvidia'\n==> ERROR: module not found: 'nvidia_uvm'"),
    ("driver_missing_or_not_loaded", "rocminfo: ROCk module is NOT loaded, possibly no GPU devices"),
    ("kernel_module_kind_wrong", "NVRM: installed in this system requires use of the NVIDIA open kernel modules.\nnvidia-smi: No devices were found"),
    ("secure_boot_blocks_module", "dmesg says that the nvidia modules were rejected, they are not signed"),
    ("secure_boot_blocks_module", "$ mokutil --sb-state\nSecureBoot enabled\n$ nvidia-smi\nNVIDIA-SMI has failed because it couldn't "
     "communicate with the NVIDIA driver."),
    ("secure_boot_blocks_module", "modprobe: ERROR: could not insert 'nvidia': Operation not permitted"),
    ("nouveau_loaded", "Graphics: Device-1: NVIDIA TU104 driver: nouveau v: kernel, and torch sees nothing"),
    ("nouveau_loaded", "  *-display  product: GA102  configuration: driver=nouveau latency=0\nno cuda"),
    ("uvm_broken_after_suspend", "When the laptop wakes up from sleep, CUDA stops working until I reload the module"),
    ("uvm_broken_after_suspend", "After hibernation cuda is no longer available in my notebook, a reboot fixes it"),
    ("secure_boot_blocks_module", "The NVIDIA driver installs fine but the module won't load. Turns out UEFI Secure Boot was on; "
     'do I have to sign the kernel module myself?'),
    ("secure_boot_blocks_module", 'dmesg: Lockdown: systemd-udevd: unsigned module loading is restricted; see man '
     'kernel_lockdown.7\n'
     'nvidia-smi does not find a driver'),
    ("secure_boot_blocks_module", "After enrolling no MOK key at the blue screen the nvidia driver is gone, nvidia-smi can't talk "
     'to it. BIOS has secure boot enabled.'),
    ("nouveau_loaded", 'lsmod | grep nouv\n'
     'nouveau              2306048  3\n'
     'mxm_wmi                16384  1 nouveau\n'
     'nvidia-smi fails'),
    ("nouveau_loaded", 'ERROR: The Nouveau kernel driver is currently in use by your system.  This driver is '
     'incompatible with the NVIDIA driver, and must be disabled before proceeding.'),
    ("nouveau_loaded", 'My card still runs with the open source nouveau driver, so torch cannot find CUDA.'),
    ("driver_missing_or_not_loaded", 'I did an apt upgrade, got a new kernel 6.8.0-45, and nvidia-smi says it cannot talk to the '
     'driver any more. Training is impossible.'),
    ("driver_missing_or_not_loaded", 'dkms autoinstall on 6.5.0-14-generic/x86_64 failed for nvidia(10)\n'
     'Error! One or more modules failed to install during autoinstall.'),
    ("mig_enabled_no_instance", 'We switched the A100 to MIG mode and now PyTorch sees zero devices. nvidia-smi lists MIG M. '
     'Enabled but there is no MIG device in the table.'),
    ("mig_enabled_no_instance", 'nvidia-smi -L\n'
     'GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-1111)\n'
     '+ MIG mode: Enabled\n'
     'RuntimeError: No CUDA GPUs are available'),
    ("mps_daemon_unreachable", 'Inside the second container CUDA cannot be initialised: the MPS control daemon of the host '
     "can't be reached because /tmp/nvidia-mps is not mounted."),
    ("libcuda_mismatch_803", 'cudaErrorSystemDriverMismatch when I start our NGC image on the cluster'),
    ("libcuda_mismatch_803", 'LD_LIBRARY_PATH contains /usr/local/cuda/compat, and with it torch says the display driver and '
     'CUDA driver combination is not supported'),
    ("forward_compat_on_consumer_gpu", 'The cuda-compat package is picked up on my GTX 1080 and CUDA refuses: forward compatibility is '
     'for datacenter cards only, it seems.'),
    ("fabric_manager_not_running", 'Fresh DGX A100: nvidia-smi fine, any CUDA program: system not yet initialised'),
    ("fabric_manager_not_running", 'systemctl status nvidia-fabricmanager\n'
     '   Active: failed (Result: exit-code) since Mon\n'
     'torch on the 8x H100 box reports no CUDA'),
    ("gpu_ecc_error", 'nvidia-smi -q shows Remapped Rows: Pending : Yes and Remapping Failure Occurred : No; jobs on '
     'that GPU crash'),
    ("gpu_ecc_error", 'One A100 reports volatile uncorrectable SRAM errors: 2, jobs die there'),
    ("gpu_fallen_off_bus", 'In the middle of the night the card vanished: lspci shows rev ff for it and nvidia-smi says no '
     'devices were found until I power cycle'),
    ("gpu_fallen_off_bus", 'nvidia-smi: GPU is lost. Reboot the system to recover this GPU'),
    ("pcie_link_degraded", 'nvidia-smi -q during training: PCIe Generation Max 4, Current 1; Link Width Max 16x Current 4x. '
     'Copies to the GPU crawl.'),
    ("pcie_link_degraded", 'The second card sits in a slot that only gives it x4 lanes, host to device bandwidth is 3 GB/s '
     'instead of 12 and training is slow'),
    ("gpu_hardware_fault", 'When all four 3090 ramp up at once the PSU trips and the whole rig turns off; with nvidia-smi '
     '-pl 250 it survives training'),
    ("gpu_hardware_fault", 'cuda launch failures happen on GPU 2 only; I swapped the cards between slots and the error '
     'moved with the card'),
    ("driver_too_old", 'nvidia driver 450 on the cluster; torch 2.2 (CUDA 12.1) reports that CUDA is not available'),
    ("driver_too_old", 'UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version '
     '11040).'),
    ("uvm_broken_after_suspend", 'Every morning after my PC slept, torch.cuda.is_available() is False until I reboot'),
    ("nvidia_uvm_missing", 'nvidia-smi lists the card but CUDA programs find none; /dev has nvidia0 and nvidiactl and no '
     'nvidia-uvm'),
    ("compute_mode_exclusive", 'RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable; the admins set the '
     'cards to EXCLUSIVE_PROCESS'),
    ("vgpu_unlicensed", "Our VM's GRID A100D-20C gets slow after 20 minutes: vGPU Software Licensed Product, License "
     'Status : Unlicensed (Unrestricted)'),
    ("gsp_firmware_timeout", 'NVRM: Xid (PCI:0000:61:00): 119, pid=4321, name=python, Timeout after 6s of waiting for RPC '
     'response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL)'),
    ("thermal_throttle", 'The A6000 reaches 93 degrees and its SM clock falls to 400 MHz, steps take twice as long'),
    ('driver_too_old', 'The nodes run drivers from 450. The new release needs at least driver version 525.60.13, could you upgrade them?'),
    ('driver_too_old', 'Our image requires driver 535 and fails with an error on the old machines, which have driver 470.223.02'),
    ('compute_mode_exclusive', 'RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable'),
    ('compute_mode_exclusive', 'cudaSetDevice(0): CUDA-capable device is busy or unavailable'),
    ('wsl_wrong_driver_inside', "$ uname -r\n5.15.90.1-microsoft-standard-WSL2\n$ nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
]  # fmt: skip
HEALTHY = [
    # what the same words say where nothing is wrong
    "After the kernel upgrade the nvidia driver was rebuilt by dkms and training goes on: step 100 loss 2.1\n"
    "nvidia/550.54.14, 6.8.0-40-generic, x86_64: installed",
    "SecureBoot enabled\n>>> torch.cuda.is_available()\nTrue\nepoch 1 loss 1.2",
    "env:\nCUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\nCUDA_MPS_LOG_DIRECTORY=/tmp/log\nstep 1 loss 2.0\nstep 2 loss 1.9",
    "we launch a new kernel per step, the nvidia profiler shows them; step 4 loss 0.2",
    "time.sleep(5) after warm up; cuda memory 3 GiB; epoch 2 loss 0.3",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14\nnvidia: module verification failed: signature and/or "
    "required key missing - tainting kernel",
    "step 802 loss 0.35 | step 803 loss 0.34 | cuda memory 999 MiB",
    '$ dkms status\n'
    'nvidia/550.90.07, 6.8.0-40-generic, x86_64: installed\n'
    'nvidia/550.90.07, 6.8.0-41-generic, x86_64: installed\n'
    '$ mokutil --sb-state\n'
    'SecureBoot enabled\n'
    '$ nvidia-smi -L\n'
    'GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-aaaa)\n'
    'epoch 3 loss 0.2',
    'env\n'
    'LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64\n'
    'CUDA_HOME=/usr/local/cuda-12.4\n'
    'CUDA_VISIBLE_DEVICES=0,1\n'
    'NVIDIA_VISIBLE_DEVICES=all\n'
    'SLURM_JOB_ID=8812\n'
    'SLURM_GPUS_ON_NODE=2\n'
    '[rank0] step 10 loss 2.31 12.3 it/s\n'
    '[rank1] step 10 loss 2.30 12.3 it/s',
    'services:\n'
    '  trainer:\n'
    '    image: pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime\n'
    '    shm_size: 16gb\n'
    '    environment:\n'
    '      CUDA_VISIBLE_DEVICES: "0"\n'
    '    deploy:\n'
    '      resources:\n'
    '        reservations:\n'
    '          devices:\n'
    '            - driver: nvidia\n'
    '              count: all\n'
    '              capabilities: [gpu]\n'
    'trainer-1  | CUDA available: True\n'
    'trainer-1  | epoch 1/10 loss 0.92',
    'INFO 08-12 10:00:01 config.py: Using CPU offload for the optimizer states\n'
    'INFO Sleeping for 10 s before the next evaluation\n'
    'INFO worker 3 woke up\n'
    'INFO resumed from checkpoint step 1200\n'
    'step 1201 loss 1.20 gpu mem 12.1 GiB\n'
    'step 1202 loss 1.19 gpu mem 12.1 GiB',
    'The machine has one GPU. I train with CUDA_VISIBLE_DEVICES=0 python train.py, 4 workers, loss '
    'goes down nicely: 2.1, 1.7, 1.3.',
    'WSL2, Ubuntu 22.04, kernel 5.15.153.1-microsoft-standard-WSL2\n'
    '$ nvidia-smi\n'
    '| NVIDIA-SMI 550.76.01              Driver Version: 552.22         CUDA Version: 12.4     |\n'
    '>>> torch.cuda.is_available()\n'
    'True\n'
    'epoch 0 loss 0.55',
    'slurmstepd: info: Setting TMPDIR to /scratch/8812\n'
    '+ nvidia-smi\n'
    '| NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2     |\n'
    '+ export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\n'
    '+ python train.py\n'
    'Epoch 1: 100%|##########| 500/500 [01:20<00:00, 6.2it/s, loss=0.51]\n'
    'Epoch 2: 100%|##########| 500/500 [01:20<00:00, 6.2it/s, loss=0.44]',
    'changelog: drop support for Python 3.8; torch 2.6 no longer ships conda packages; add wheels '
    'for Python 3.13\n'
    'step 100 loss 0.8',
    'kernel fusion on the new kernel gives 10 % more tokens per second; nvidia nsight shows 92 % SM '
    'busy. step 400 loss 1.9',
    'ls -l /dev/nvidia*\n'
    'crw-rw-rw- 1 root root 195,   0 Aug  1 10:00 /dev/nvidia0\n'
    'crw-rw-rw- 1 root root 195, 255 Aug  1 10:00 /dev/nvidiactl\n'
    'crw-rw-rw- 1 root root 511,   0 Aug  1 10:00 /dev/nvidia-uvm\n'
    '>>> torch.cuda.is_available()\n'
    'True',
    'Package                  Version\n'
    '------------------------ -----------\n'
    'numpy                    2.1.3\n'
    'nvidia-cublas-cu12       12.4.5.8\n'
    'nvidia-cudnn-cu12        9.1.0.70\n'
    'nvidia-nccl-cu12         2.21.5\n'
    'torch                    2.6.0\n'
    'torchvision              0.21.0\n'
    'triton                   3.2.0',
    'Inductor: torch.compile took 34.2 s. triton 3.1.0, torch 2.5.1. Warning: not enough SMs to use '
    'max_autotune_gemm mode\n'
    'step 10 loss 0.7',
    'Sleeping GPUs are in P8, the PCIe link is at Gen1 then; under load Gen4 x16 as it should be. '
    'Training at 14 it/s.',
    'podman run --device nvidia.com/gpu=all --rm -it localhost/train python -c "import torch; '
    'print(torch.cuda.device_count(), torch.cuda.is_available())"\n'
    '2 True',
    'lspci -k -s 01:00.0\n'
    '01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n'
    '\tKernel driver in use: nvidia\n'
    '\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia',
    'apt upgrade installed nvidia-driver-550 550.90; after a reboot nvidia-smi shows 550.90.07 and '
    'the jobs run again: step 1 loss 2.0, step 2 loss 1.8',
    'CUDA 12.4 needs driver 550 or newer. We upgraded, Driver Version: 550.54.15, and step 10 has loss 0.4',
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_people_and_programs_say_of_a_driver(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize("text", HEALTHY)
def test_the_same_words_where_nothing_is_wrong(text):
    report = report_of(text)
    assert not [f for f in report.findings if f.severity == "broken"], ids(text)


def test_a_missing_module_is_the_root_of_those_that_hang_on_it():
    text = "module not found: 'nvidia'\nmodule not found: 'nvidia_uvm'\nmodprobe nvidia_uvm fails, no nvidia gpu"
    assert first(text) == "driver_missing_or_not_loaded"
