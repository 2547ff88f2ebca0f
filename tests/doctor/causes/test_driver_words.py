from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("gsp_firmware_timeout", "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP"),
    ("gsp_firmware_timeout", "nvidia 0000:65:00.0: Direct firmware load for nvidia/550.90/gsp_ga10x.bin failed with error -2"),
    ("gsp_firmware_timeout", "nvidia-smi hangs every week; since we disabled the GSP firmware it is stable"),
    ("vgpu_unlicensed", "nvidia-gridd[812]: Unlicensed Unrestricted (Unlicensed)"),
    ("nvidia_uvm_missing", "plugin started\nError: could not load UVM kernel module"),
    ("nvidia_uvm_missing", "stderr: nvidia-container-cli: initialization error: cuda error: unknown error"),
    ("uvm_broken_after_suspend", "llama: failed to initialize CUDA: unknown error, no devices"),
    ("secure_boot_blocks_module", "ERROR: The kernel module failed to load, because it was not signed by a key that is trusted by the kernel"),
    ("secure_boot_blocks_module", "I skipped the MOK screen at boot, and nvidia-smi can't communicate with the driver"),
    ("driver_missing_or_not_loaded", "kernel driver does not appear to be running on this host (n1): /proc/driver/nvidia/version does not exist"),
    ("driver_missing_or_not_loaded", "CudaSupportError: Error at driver init: CUDA driver library cannot be found."),
    ("driver_missing_or_not_loaded", "FileNotFoundError: Could not find module 'nvcuda.dll'"),
    ("driver_library_mismatch", "kernel version 510.39.1 does not match DSO version 510.47.3 -- cannot find working devices in this configuration"),
    ("driver_too_old", "ptxas fatal : Unsupported .version 8.2; current version is '8.0'"),
    ("driver_too_old", "cupy: cudaErrorCallRequiresNewerDriver"),
    ("driver_too_old", "ImportError: libfoo.so: undefined symbol: cuTensorMapEncodeTiled"),
    ("driver_too_old", "level=INFO msg=\"cudart init failure: 35\""),
    ("gpu_ecc_error", "Retired pages: Double Bit ECC : 4, the jobs of that node die"),
    ("kernel_launch_timeout", "Event 4101: nvlddmkm stopped responding and has recovered; our CUDA program is gone"),
    ("kernel_launch_timeout", "CUDA error at sim.cu:88 code=702"),
    ("mps_daemon_unreachable", "nvidia-cuda-mps-control: Cannot find MPS control daemon process"),
    ("compute_mode_exclusive", "numba: Call to cuCtxCreate results in CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ("illegal_memory_access", "Memory access fault by GPU node-2 on address 0x7f1000. Reason: Page not present."),
    ("driver_missing_or_not_loaded", "CUDA.functional() is false: No system CUDA driver found"),
    ("driver_missing_or_not_loaded", "nvidia-container-cli: initialization error: driver rpc error: failed to process request"),
    ("driver_too_old", "Triton Error [CUDA]: device kernel image is invalid"),
    ("container_toolkit_missing", "nvidia-container-cli: mount error: failed to add device rules: operation not permitted"),
    ("container_toolkit_missing", "kubectl describe node shows nvidia.com/gpu:   0 since the upgrade of the cluster"),
    ("gpu_fallen_off_bus", "pcieport 0000:80:01.1: pciehp: Slot(3): Link Down\nnvidia 0000:81:00.0 is gone"),
]  # fmt: skip

SILENT = [
    ("driver_too_old", "undefined symbol: cudaGetDriverEntryPointByVersion"),
    ("driver_too_old", "libtorch.so: undefined symbol: cublasLtCreate"),
    ("driver_too_old", "NOTE: undefined symbol: cutensorInit in an optional library"),
    ("driver_missing_or_not_loaded", "cuda_diagnostics: if you do not have a GPU set up on your machine ignore this\n"
     "kernel driver does not appear to be running on this host\nstep 10 loss 0.4"),
    ("mps_daemon_unreachable", "On this Apple laptop torch.backends.mps cannot find MPS server support, loss 0.3"),
    ("secure_boot_blocks_module", "SecureBoot disabled. I enrolled a MOK key last year; nvidia-smi can't communicate with the driver"),
    ("nvidia_uvm_missing", "nvidia_uvm: Loaded the UVM driver, major device number 510. step 1 loss 2.0"),
    ("container_toolkit_missing", "the node has nvidia.com/gpu: 8 and all pods run"),
    ("gsp_firmware_timeout", "NVRM: loading GSP firmware gsp_tu10x.bin 550.90 done, step 3 loss 0.9"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_programs_print_of_the_driver(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(("cause", "text"), SILENT)
def test_the_same_words_in_another_sense(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity != "info"], ids(text)


def test_a_missing_driver_function_is_named():
    found = report_of("symbol lookup error: libnccl.so.2: undefined symbol: cuMemCreate").findings[0]
    assert found.title.endswith("cuMemCreate")
