from tests.doctor.causes.judge import first_is, silent, unbroken

test_a_number_in_place_of_a_name = first_is([
    ("driver_too_old", "OSError: (External) Cuda error(35)"),
    ("fabric_manager_not_running", "cupy: cuInit(0) failed, returned 802 on a DGX with A100-SXM4"),
    ("fabric_manager_not_running", "Check failed: status == CUDA_SUCCESS (802 vs. 0) on our HGX box"),
    ("fabric_manager_not_running", "[802] Call to cuDeviceGetCount results in an error, eight H100 SXM"),
    ("mps_daemon_unreachable", "cuInit failed with error code 806 when the second worker starts"),
    ("gpu_ecc_error", "cudaGetDeviceProperties returned error 214 this morning, the V100 worked yesterday"),
    ("driver_too_old", "cudaGetDeviceCount() failed. Status: 35"),
    ("gpu_fallen_off_bus", "Our jobs die about once a day. The admin sees Xids 79 in the log of that node."),
    ("gpu_ecc_error", "training stops, and there are Xid events 48 on gpu 3"),
    ("driver_too_old", "cudaGetDeviceCount failed in framework::platform::Count, error code : 35, see the manual"),
    ("driver_too_old", "Check failed: e == cudaSuccess (35 vs. 0)"),
    ("driver_too_old", "TensorRT: CUDA initialization failure with error: 222"),
    ("kernel_launch_timeout", "Check failed: error == cudaSuccess (6 vs. 0)"),
    ("compute_mode_exclusive", "faiss: CUDA error 46 in the second process"),
    ("gpu_ecc_error", "NCCL WARN Cuda failure 214"),
    ("illegal_memory_access", "ExternalError: CUDA error(700)"),
    ("fabric_manager_not_running", "onnxruntime: CUDA failure 802"),
    ("driver_library_mismatch", "[train] nvidia-smi failed with return code 18"),
    ("gpu_fallen_off_bus", "dcgm: nvmlDeviceGetHandleByIndex failed: 15"),
    ("device_permission_denied", "nvmlInit returned 4 in the worker"),
])  # fmt: skip
test_numbers_of_other_things = silent([
    "CUDA error rate over 35 runs: 0.0, step 3 loss 0.2",
    "cudaSuccess (0), all well, 35 vs. 36 images",
    "nvmlDeviceGetTemperature: 18 C, step 3 loss 0.2",
    "torch 2.4, CUDA 12.4, error code : 35 from the shell script of another program",
    "step 802 loss 0.35 | step 803 loss 0.34 | cuda memory 999 MiB",
    "GPU training: 802 images per second, 3 errors in the labels",
    "cuda error 3500 of the label noise, accuracy 46%",
], seen=unbroken)  # fmt: skip
