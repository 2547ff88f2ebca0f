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
    ("driver_does_not_support_gpu", "NVRM: installed in this system requires use of the NVIDIA open kernel modules.\nnvidia-smi: No devices were found"),
    ("secure_boot_blocks_module", "dmesg says that the nvidia modules were rejected, they are not signed"),
    ("secure_boot_blocks_module", "$ mokutil --sb-state\nSecureBoot enabled\n$ nvidia-smi\nNVIDIA-SMI has failed because it couldn't "
     "communicate with the NVIDIA driver."),
    ("secure_boot_blocks_module", "modprobe: ERROR: could not insert 'nvidia': Operation not permitted"),
    ("nouveau_loaded", "Graphics: Device-1: NVIDIA TU104 driver: nouveau v: kernel, and torch sees nothing"),
    ("nouveau_loaded", "  *-display  product: GA102  configuration: driver=nouveau latency=0\nno cuda"),
    ("uvm_broken_after_suspend", "When the laptop wakes up from sleep, CUDA stops working until I reload the module"),
    ("uvm_broken_after_suspend", "After hibernation cuda is no longer available in my notebook, a reboot fixes it"),
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
]


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
