"""Many ways in which people say the same fault, in their own words."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import report_of

ENV = "Collecting environment information...\nPyTorch version: 2.1.2+cu118\nIs debug build: False\nCUDA used to build PyTorch: 11.8\nOS: Ubuntu 20.04.6 LTS (x86_64)\nPython version: 3.10.13\nIs CUDA available: True\nGPU models and configuration:\nGPU 0: NVIDIA A100-SXM4-40GB\nNvidia driver version: 525.105.17\n"
CASES = [
    (
        "oom_other_process",
        "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 10.76 GiB total capacity; 1.10 GiB already allocated; 3.5 MiB free; 1.2 GiB reserved in total by PyTorch)",
    ),
    (
        "oom_capacity",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 8.00 GiB total capacity; 6.98 GiB already allocated; 0 bytes free; 7.05 GiB reserved in total by PyTorch)",
    ),
    (
        "oom_capacity",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 166.12 MiB is free. Process 4210 has 14.57 GiB memory in use. Of the allocated memory 14.22 GiB is allocated by PyTorch, and 230.10 MiB is reserved by PyTorch but unallocated.",
    ),
    (
        "oom_variable_length_batch",
        "OOM at iteration 15234 after two days of training; audio clips have lengths between 1 and 40 s",
    ),
    (
        "oom_eval_without_no_grad",
        "RuntimeError: CUDA out of memory during validation, training is fine. model.eval() is called but no torch.no_grad()",
    ),
    (
        "leak_graph_kept",
        "RuntimeError: CUDA out of memory ... after 3 epochs. GPU memory keeps growing. losses.append(loss)",
    ),
    (
        "host_oom_killed",
        "RuntimeError: DataLoader worker (pid(s) 3821, 3822) exited unexpectedly\n[1]    3799 killed     python train.py",
    ),
    (
        "host_oom_killed",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED exitcode : -9 (pid: 1234) Signal 9 (SIGKILL) received by PID 1234",
    ),
    (
        "too_many_open_files",
        "RuntimeError: unable to open shared memory object </torch_29919_1396182366> in read-write mode",
    ),
    ("shm_too_small", "OSError: [Errno 28] No space left on device: '/dev/shm/...' DataLoader in docker"),
    (
        "nccl_shm_too_small",
        "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-3iIhCq to 9637892 bytes, error: No space left on device (28)",
    ),
    (
        "cuda_in_forked_worker",
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0. ... CUDA error: initialization error",
    ),
    (
        "label_out_of_range",
        "ClassNLLCriterion.cu:108: cunn_ClassNLLCriterion_updateOutput_kernel: block: [0,0,0], thread: [1,0,0] Assertion `t >= 0 && t < n_classes` failed. RuntimeError: cublas runtime error : resource allocation failed",
    ),
    (
        "label_out_of_range",
        '../aten/src/ATen/native/cuda/ScatterGatherKernel.cu:144: Assertion `idx_dim >= 0 && idx_dim < index_size && "index out of bounds"` failed.   true_dist.scatter_(1, labels.unsqueeze(1), 1)',
    ),
    (
        "label_out_of_range",
        "../aten/src/ATen/native/cuda/Loss.cu:92: operator(): block: [0,0,0] Assertion `input_val >= zero && input_val <= one` failed.",
    ),
    (
        "embedding_index_out_of_range",
        "RuntimeError: index out of range: Tried to access index 30522 out of table with 30521 rows. at /pytorch/aten/src/TH/generic/THTensorEvenMoreMath.cpp:418",
    ),
    (
        "embedding_index_out_of_range",
        '../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.  position_ids = self.position_embeddings(pos)',
    ),
    (
        "fp16_overflow_nan",
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1\nCurrent loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    ("fp16_overflow_nan", "RuntimeError: value cannot be converted to type at::Half without overflow: -1e+09"),
    ("fp16_overflow_nan", "{'loss': nan, 'grad_norm': nan, 'learning_rate': 2e-05} --fp16 True"),
    (
        "bf16_unsupported_gpu",
        "RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16.",
    ),
    ("bf16_unsupported_gpu", "ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device."),
    ("half_on_cpu", "RuntimeError: \"slow_conv2d_cpu\" not implemented for 'Half'"),
    ("amp_no_gradients", "AssertionError: No inf checks were recorded prior to update."),
    (
        "training_on_cpu",
        "UserWarning: GPU available but not used. You can set it by doing `Trainer(accelerator='gpu')`.",
    ),
    (
        "ddp_unused_parameters",
        "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss returned by training_step.",
    ),
    (
        "ddp_uneven_inputs",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(OpType=ALLREDUCE), but Rank 0 is running collective: BARRIER",
    ),
    (
        "nccl_timeout_one_rank_busy",
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by store->get('0'), but store->get('0') got error: Socket Timeout\nrank 0 preprocesses the dataset",
    ),
    ("nccl_p2p_hang", "Multi-GPU training freezes on 2x RTX 4090, GPU util 100%, disabling IOMMU in BIOS solved it"),
    (
        "nccl_network_unreachable",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 113 - No route to host).",
    ),
    (
        "nccl_network_unreachable",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.1.5, 29400).",
    ),
    (
        "nccl_wrong_interface",
        "[W ProcessGroupGloo.cpp:685] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
    ),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    (
        "duplicate_gpu_ranks",
        "ncclInvalidUsage ... Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 1a000",
    ),
    ("invalid_device_ordinal", "AssertionError: Invalid device id"),
    (
        "invalid_device_ordinal",
        "lightning MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n But your machine only has: [0, 1]",
    ),
    (
        "too_many_workers",
        "This DataLoader will create 64 worker processes in total. Our suggested max number of worker in current system is 16",
    ),
    (
        "dataloader_bottleneck",
        "[10/20 12:00:01 d2.utils.events]: eta: 3:20:10  iter: 199  total_loss: 1.2  time: 1.5432  last_time: 1.4  data_time: 1.2011  last_data_time: 1.1 lr: 0.01 max_mem: 5120M\n[10/20 12:00:31 d2.utils.events]: eta: 3:20:10  iter: 219  total_loss: 1.2  time: 1.5432  data_time: 1.2211  lr: 0.01",
    ),
    (
        "dataloader_bottleneck",
        "Train: 0 [ 100/1251 (  8%)]  Loss: 6.9 (6.9)  Time: 2.134s,  119.96/s  (2.2s,  116/s)  LR: 1.0e-06  Data: 1.854 (1.9)",
    ),
    (
        "compile_recompiles",
        "W1120 torch/_dynamo/convert_frame.py:861] [3/64] torch._dynamo hit config.cache_size_limit (64)",
    ),
    (
        "driver_too_old",
        "CUDA initialization: The NVIDIA driver on your system is too old (found version 9010). Please update your GPU driver",
    ),
    (
        "driver_too_old",
        "Driver Version: 418.87.00    CUDA Version: 10.1\npip install torch==1.12.1+cu113\n>>> torch.cuda.is_available()\nFalse",
    ),
    (
        "driver_too_old",
        "nvidia-smi: CUDA Version: 11.2 Driver Version: 460.91.03\n>>> torch.__version__\n'2.1.2+cu121'\n>>> torch.cuda.is_available()\nFalse",
    ),
    (
        "cpu_only_torch",
        "conda list\npytorch                   1.12.1          cpu_py310hb1f1ab4_1  \nUserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling",
    ),
    (
        "cpu_only_torch",
        'raise AssertionError("Torch not compiled with CUDA enabled")\nAssertionError: Torch not compiled with CUDA enabled\nWindows 10, RTX 2060',
    ),
    (
        "gpu_newer_than_wheel_archs",
        "UserWarning: GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation. The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75.",
    ),
    (
        "gpu_older_than_wheel_archs",
        "Found GPU0 NVIDIA GeForce GTX 1060 which is of compute capability (CC) 6.1. The following list shows the CCs this version of PyTorch was built for ... The minimum and maximum cuda capability supported by this library are (7.5) - (12.0)",
    ),
    (
        "container_without_gpu_access",
        "Dockerfile FROM pytorch/pytorch. docker-compose up. RuntimeError: Found no NVIDIA driver on your system. nvidia-smi works on host",
    ),
    ("no_gpu_on_machine", "RuntimeError: No CUDA GPUs are available (running in GitHub Actions)"),
    (
        "uvm_broken_after_suspend",
        "After my laptop resumes from sleep: RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
    ),
    (
        "fabric_manager_not_running",
        "8x A100 SXM HGX, is_available False, nvidia-fabricmanager.service: inactive (dead)",
    ),
    (
        "numpy2_abi",
        "ImportError: numpy.core.multiarray failed to import (auto-generated because you didn't call 'numpy.import_array()')",
    ),
    (
        "torchvision_torch_mismatch",
        "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA versions. PyTorch has CUDA Version=11.3 and torchvision has CUDA Version=10.2.",
    ),
    (
        "library_path_shadows_bundled",
        "OSError: /opt/conda/lib/python3.8/site-packages/nvidia/cublas/lib/libcublas.so.11: symbol cublasLtGetStatusString version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference",
    ),
    (
        "library_path_shadows_bundled",
        "Could not load library libcudnn_cnn_infer.so.8. Error: /usr/lib/x86_64-linux-gnu/libcudnn_cnn_infer.so.8: undefined symbol: _ZN5cudnn3ops..., version libcudnn_ops_infer.so.8",
    ),
    (
        "mixed_cuda_packages",
        "pip list: nvidia-cudnn-cu12 9.1.0, nvidia-cudnn-cu13 9.12.0, torch 2.9.0+cu128, cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    ),
    (
        "extension_built_for_other_cuda",
        "ImportError: libcudart.so.12: cannot open shared object file (import mmcv._ext)",
    ),
    ("jetson_generic_wheel", "Jetson AGX Xavier: pip3 install torch; torch.cuda.is_available() -> False"),
    (
        "wsl_wrong_driver_inside",
        "WSL2 Ubuntu: sudo apt install nvidia-cuda-toolkit nvidia-driver-510; nvidia-smi: NVML: Driver/library",
    ),
    ("gpu_fallen_off_bus", "nvidia-smi: Unable to determine the device handle for GPU0000:3D:00.0: Unknown Error"),
    ("gpu_ecc_error", "Xid (PCI:0000:b1:00): 94, pid=37, Contained: SM. RST: No, D-RST: No"),
    ("thermal_throttle", "GPU clocks drop from 1900 to 300 MHz after a few minutes, temp 94 C"),
    (
        "tf32_off",
        "after upgrading from 1.11 to 1.12 float32 matmul is 5x slower on A100; torch.backends.cuda.matmul.allow_tf32",
    ),
    (
        "workers_recreated_each_epoch",
        "At the beginning of each epoch there is a pause of 20 seconds before training starts",
    ),
    (
        "worker_copy_on_write_growth",
        "CPU memory usage increases during training until all 128GB RAM is used, num_workers=8, dataset stores annotations in a list",
    ),
    ("state_dict_module_prefix", "KeyError: 'unexpected key \"module.features.0.weight\" in state_dict'"),
    (
        "mps_macos_too_old",
        "RuntimeError: The MPS backend is supported on MacOS 12.3+.Current OS version can be queried using `sw_vers`",
    ),
    (
        "python_unsupported_by_wheel",
        "× No solution found when resolving dependencies: Because torch==1.13.1 has no wheels with a matching Python implementation tag (e.g., cp312)",
    ),
    (
        "kernel_launch_timeout",
        "RuntimeError: CUDA error: the launch timed out and was terminated\nGPU also drives the display",
    ),
    (
        "visible_devices_hides_gpu",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n...\nRuntimeError: No CUDA GPUs are available",
    ),
    (
        "p2p_unsupported_rtx40",
        "NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",
    ),
    ("triton_torch_mismatch", "AttributeError: 'CompiledKernel' object has no attribute 'launch_enter_hook'"),
    ("extension_torch_abi_mismatch", "libtorchaudio.so: undefined symbol: _ZNK3c105Error4whatEv"),
    (
        "extension_missing_arch",
        "CUDA error (xformers/csrc/attention/...): no kernel image is available for execution on the device",
    ),
    ("vgpu_unlicensed", "nvidia-gridd: Failed to acquire license from license server. vGPU performance is degraded"),
    (
        "dataparallel_imbalance",
        "When I use nn.DataParallel with 4 GPUs, GPU 0 uses 11GB, others only 5GB, out of memory on GPU 0",
    ),
    ("extra_contexts_on_gpu0", "with DDP, each process allocates about 600MB on GPU 0 in addition to its own GPU"),
    ("oom_masked_as_library_error", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    ("oom_masked_as_library_error", "RuntimeError: GET was unable to find an engine to execute this computation"),
    (
        "oom_after_batch_size_finder",
        "auto_find_batch_size=True ... RuntimeError: No executable batch size found, reached zero.",
    ),
    (
        "oom_optimizer_state",
        "File torch/optim/adam.py line 141 in step\n state['exp_avg'] = torch.zeros_like(p, memory_format=torch.preserve_format)\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB",
    ),
    (
        "oom_fragmentation",
        "CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 23.65 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 23.2 GiB memory in use. Of the allocated memory 15.10 GiB is allocated by PyTorch, and 7.60 GiB is reserved by PyTorch but unallocated.",
    ),
    ("illegal_memory_access", "RuntimeError: CUDA error: misaligned address"),
    (
        "gpu_hardware_fault",
        "CUDA error: unspecified launch failure; the PC reboots under load, a new power supply fixed it",
    ),
    ("too_few_workers", "GPU util is 5% most of the time, I use DataLoader with default num_workers (0)"),
    ("slow_storage", "Training from /mnt/c in WSL2 is 10x slower than from the Linux filesystem"),
    (
        "cpu_oversubscription",
        "torchrun with 8 processes, each uses 96 threads, htop shows all cores red, very slow. export OMP_NUM_THREADS=8 fixed it",
    ),
    (
        "cgroup_cpu_limit",
        "In Kubernetes pod with cpu limit 2, os.cpu_count() is 64, so PyTorch starts 64 threads: inference is very slow",
    ),
    (
        "gpu_sync_each_step",
        "Profiling shows that most time is spent in .item() calls in the training loop, cudaMemcpyAsync DtoH each step",
    ),
    (
        "vram_spill_to_system_memory",
        "On Windows with driver 536.23 training becomes extremely slow when VRAM is full instead of throwing an OOM; shared GPU memory rises",
    ),
    (
        "healthy",
        "Epoch 1/3: 100%|####| 938/938 [00:12<00:00, 75.2it/s, loss=0.31]\nEpoch 2/3: 100%|####| 938/938 [00:12<00:00, 75.9it/s, loss=0.12]",
    ),
    (
        "healthy",
        "| NVIDIA-SMI 535.54.03  Driver Version: 535.54.03  CUDA Version: 12.2 |\n|   0  NVIDIA GeForce RTX 3080   Off | 00000000:01:00.0  On |  N/A |\n|  0%   41C    P8  20W / 320W |  512MiB / 10240MiB |  3%  Default |",
    ),
    (
        "healthy",
        "PyTorch version: 2.5.1+cu121\nIs CUDA available: True\nCUDA used to build PyTorch: 12.1\nGPU 0: Tesla T4\nNvidia driver version: 535.104.05\nTraceback (most recent call last):\n  File x.py\nValueError: too many values to unpack",
    ),
    (
        "healthy",
        "WARNING:torch.distributed.run: Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed.\nstep 10 loss 2.3\nstep 20 loss 2.1",
    ),
    (
        "healthy",
        "[W socket.cpp:697] [c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97 - Address family not supported by protocol).\nstep 10 loss 2.3",
    ),
    (
        "healthy",
        "GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores\nEpoch 0: 12%| 12/100 [00:03<00:20, 4.1it/s]",
    ),
    (
        "healthy",
        "Token indices sequence length is longer than the specified maximum sequence length for this model (1044 > 1024). Running this sequence through the model will result in indexing errors\nstep 3 loss 2.2",
    ),
    (
        "oom_capacity",
        ENV
        + "  File train.py, line 20, in forward\n    x = self.conv(x)\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 39.39 GiB total capacity; 36.10 GiB already allocated; 1.20 GiB free; 37.00 GiB reserved in total by PyTorch)",
    ),
    (
        "cuda_in_forked_worker",
        ENV
        + "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
    ),
    (
        "library_path_shadows_bundled",
        ENV
        + "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx( handle, opa, opb, m, n, k`\nunset LD_LIBRARY_PATH solved it",
    ),
    (
        "host_oom_killed",
        "# training stops without any message after some hours; dmesg:\n[123456.7] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker-abc,task=python,pid=991",
    ),
    (
        "nccl_timeout_one_rank_busy",
        "[rank1]:[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST, Timeout(ms)=1800000)\nrank 0 is still mapping the dataset: Map:  63%|######",
    ),
    ("nccl_p2p_hang", "# 2x A6000, DDP stuck after 'Initializing distributed', NCCL_P2P_DISABLE=1 helps"),
    (
        "nccl_p2p_hang",
        "DataParallel on two RTX 3090 never returns from the first forward; AMD Threadripper with IOMMU enabled",
    ),
    (
        "too_many_open_files",
        "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the limit using `ulimit -n` in the shell",
    ),
    ("too_many_open_files", "OSError: [Errno 24] Too many open files"),
    (
        "extra_contexts_on_gpu0",
        "|    0      1201      C   python    8011MiB |\n|    0      1202      C   python    513MiB |\n|    0      1203      C   python    513MiB |\n|    1      1202      C   python    8011MiB |\n|    2      1203      C   python    8011MiB |",
    ),
    (
        "dataparallel_imbalance",
        "DataParallel: | 0 GeForce 2080Ti | 10800MiB / 11019MiB | 1: 4100MiB / 11019MiB; first GPU is full, the rest half empty",
    ),
    (
        "gpu_sync_each_step",
        "# nsight: gaps between steps, each step ends with cudaStreamSynchronize called from loss.item()",
    ),
    (
        "tf32_off",
        "UserWarning: Please use the new API settings to control TF32 ... training in fp32 on an A100 is as slow as on a V100",
    ),
    (
        "thermal_throttle",
        "nvidia-smi -q -d PERFORMANCE\n    Clocks Throttle Reasons\n        HW Thermal Slowdown : Active\n        SW Thermal Slowdown : Active\n speed drops by half after 10 min",
    ),
    ("slow_storage", "Dataset on a mechanical hard disk, GPU utilization mostly 0%"),
    ("slow_storage", "data on NFS; time per batch 4 s; copying it to /dev/shm makes it 0.3 s"),
    (
        "cgroup_cpu_limit",
        "docker run --cpus=4 on a 64-core host; torch.get_num_threads() returns 64; training is much slower than outside",
    ),
    (
        "cpu_oversubscription",
        "8 dataloader workers each spawn 32 OpenMP threads; cv2.setNumThreads(0) made it 6x faster; was very slow",
    ),
    (
        "worker_copy_on_write_growth",
        "memory of the dataloader workers slowly increases over an epoch until OOM killer; dataset keeps a python list of 10M strings; replaced by numpy array fixes",
    ),
    ("leak_graph_kept", "CUDA memory increases with every iteration until out of memory: loss_sum = loss_sum + loss"),
    (
        "leak_graph_kept",
        "RuntimeError: CUDA out of memory after ~200 batches; hidden state is not detached, retain_graph=True",
    ),
    (
        "oom_eval_accumulates_predictions",
        "CUDA out of memory in trainer.evaluate(); setting eval_accumulation_steps=1 helps",
    ),
    (
        "oom_eval_without_no_grad",
        "OOM in validation loop although training works with the same batch size\n  File train.py, line 120, in evaluate\n    loss = model(batch)",
    ),
    (
        "oom_optimizer_state",
        "OOM at optimizer.step() in the first iteration, forward and backward are fine; AdamW 7B model",
    ),
    (
        "oom_masked_as_library_error",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR\nreducing the batch size makes it disappear",
    ),
    (
        "label_out_of_range",
        "RuntimeError: CUDA error: device-side assert triggered\n  loss = criterion(outputs, labels)\n I have 10 classes labelled 1..10",
    ),
    (
        "label_out_of_range",
        "/opt/conda/conda-bld/pytorch/aten/src/THCUNN/SpatialClassNLLCriterion.cu:103: Assertion `t >= 0 && t < n_classes` failed.",
    ),
    (
        "embedding_index_out_of_range",
        "IndexError: index out of range in self\n  File torch/nn/functional.py, in embedding",
    ),
    ("fp16_overflow_nan", "training with amp: loss becomes nan after 300 steps, fp32 is fine"),
    (
        "fp16_overflow_nan",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\n[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1",
    ),
    (
        "bf16_unsupported_gpu",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA TITAN RTX GPU has compute capability 7.5.",
    ),
    ("half_on_cpu", "RuntimeError: \"baddbmm_with_gemm\" not implemented for 'Half'"),
    ("amp_scaler_misuse", "AssertionError / RuntimeError: step() has already been called since the last update()."),
    ("training_on_cpu", "Using device: cpu\nI have an RTX 3080, nvidia-smi shows 0% usage, one epoch takes 3 hours"),
    (
        "invalid_device_ordinal",
        "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported\ntorch.cuda.set_device(local_rank) with --nproc_per_node=8 on a 4-GPU node",
    ),
    ("port_in_use", "RuntimeError: Address already in use (torch.distributed.launch, second job on the same machine)"),
    (
        "nccl_network_unreachable",
        "NCCL WARN Net : Connect to 192.168.1.12<41999> failed : Connection timed out\nncclSystemError",
    ),
    ("nccl_wrong_interface", "NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>"),
    (
        "state_dict_module_prefix",
        'RuntimeError: Error(s) in loading state_dict for DataParallel:\n\tMissing key(s) in state_dict: "module.conv1.weight", "module.bn1.weight"',
    ),
    ("ddp_unused_parameters", "Parameter indices which did not receive grad for rank 1: 12 13 14"),
    (
        "compile_recompiles",
        "torch.compile recompiles for every sequence length, TORCH_LOGS=recompiles shows size mismatch at index 1. expected 128, actual 129",
    ),
    (
        "cudnn_benchmark_variable_shapes",
        "cudnn.benchmark=True with multi-scale training makes each iteration 3x slower",
    ),
    (
        "workers_recreated_each_epoch",
        "Every epoch begins with 30 s where nothing happens (workers are spawned on Windows)",
    ),
    ("too_few_workers", "num_workers=0, GPU-Util oscillates between 0% and 30%"),
    (
        "too_many_workers",
        "UserWarning: This DataLoader will create 12 worker processes in total. Our suggested max number of worker in current system is 2, which is smaller than what this DataLoader is going to create.",
    ),
    ("gpu_hardware_fault", "NVRM: Xid (PCI:0000:04:00): 62, pid=1, 206b(2c88) 00000000 00000000"),
    (
        "gpu_hardware_fault",
        "random 'CUDA error: unspecified launch failure' and 'illegal instruction' on one card only; RMA'd the card",
    ),
    ("illegal_memory_access", "CUDA error: an illegal memory access was encountered\n  File flashinfer/decode.py"),
    (
        "kernel_launch_timeout",
        "RuntimeError: cuda runtime error (6) : the launch timed out and was terminated at /pytorch/torch/csrc/generic/serialization.cpp:23",
    ),
    (
        "mps_daemon_unreachable",
        "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    (
        "compute_mode_exclusive",
        "|  N/A   34C    P0    40W / 300W |  1200MiB / 16160MiB |  0%  E. Process |\nRuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
    ),
    (
        "nvidia_uvm_missing",
        "podman run --device /dev/nvidia0 --device /dev/nvidiactl ... torch: CUDA unknown error; adding --device /dev/nvidia-uvm fixed it",
    ),
    (
        "secure_boot_blocks_module",
        "dmesg: nvidia: module verification failed / Loading of module with unavailable key is rejected; mokutil --sb-state: SecureBoot enabled",
    ),
    (
        "nouveau_loaded",
        "ERROR: The Nouveau kernel driver is currently in use by your system. This driver is incompatible with the NVIDIA driver",
    ),
    (
        "driver_missing_or_not_loaded",
        "$ nvidia-smi\nCommand 'nvidia-smi' not found, but can be installed with: sudo apt install nvidia-utils-535\n>>> torch.cuda.is_available()\nFalse\nlspci: 01:00.0 VGA compatible controller: NVIDIA Corporation GA106",
    ),
    (
        "driver_missing_or_not_loaded",
        "after kernel update to 6.8: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver; dkms status: nvidia/535: added",
    ),
    (
        "glibc_too_old",
        "CentOS 7: ImportError: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by .../libtorch.so)",
    ),
    (
        "libstdcxx_too_old",
        "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by .../flash_attn_2_cuda.so)",
    ),
    (
        "wrong_accelerator_build",
        "pip install torch on a machine with Radeon RX 6800; RuntimeError: Found no NVIDIA driver on your system",
    ),
    ("vgpu_unlicensed", "GRID V100D-8Q: License Status : Unlicensed; CUDA apps slow down after 20 minutes"),
    (
        "forward_compat_on_consumer_gpu",
        "docker nvidia/cuda:12.4 with RTX 2080 Ti driver 470: Error 804: forward compatibility was attempted on non supported HW",
    ),
    (
        "extension_torch_abi_mismatch",
        "ImportError: .../torch_scatter/_scatter_cuda.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs",
    ),
    (
        "extension_built_for_other_cuda",
        "The detected CUDA version (11.5) mismatches the version that was used to compile PyTorch (12.1). Please make sure to use the same CUDA versions. (apex setup.py)",
    ),
    (
        "bundled_cuda_library_missing",
        "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory\n  File .../torch/__init__.py, line 367, in <module>\n    from torch._C import *",
    ),
    (
        "windows_dll_dependency_missing",
        "ImportError: DLL load failed while importing _C: The specified procedure could not be found. C:\\Users\\x\\torch",
    ),
    (
        "python_unsupported_by_wheel",
        "pip install torch==1.7.1\nERROR: Could not find a version that satisfies the requirement torch==1.7.1 (from versions: 1.11.0, 1.12.0)",
    ),
    (
        "numpy2_abi",
        "UserWarning: Failed to initialize NumPy: _ARRAY_API not found (Triggered internally at ../torch/csrc/utils/tensor_numpy.cpp:84.)",
    ),
    ("triton_torch_mismatch", "ImportError: cannot import name 'AttrsDescriptor' from 'triton.compiler.compiler'"),
    (
        "no_gpu_on_machine",
        ENV.replace("Is CUDA available: True", "Is CUDA available: False").replace(
            "GPU models and configuration:\nGPU 0: NVIDIA A100-SXM4-40GB\nNvidia driver version: 525.105.17\n",
            "GPU models and configuration: Could not collect\nNvidia driver version: Could not collect\n",
        )
        + "sbatch job without --gres: RuntimeError: No CUDA GPUs are available",
    ),
    (
        "visible_devices_hides_gpu",
        "$ echo $CUDA_VISIBLE_DEVICES\n\n$ CUDA_VISIBLE_DEVICES='' python -c 'import torch; print(torch.cuda.is_available())'\nFalse",
    ),
    (
        "visible_devices_set_too_late",
        'import torch\nimport os\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n# model is still placed on GPU 0',
    ),
    (
        "mixed_cuda_packages",
        "conda: cudatoolkit 11.3.1, pip: torch 1.13.1+cu117, nvidia-cublas-cu11 and nvidia-cublas-cu12 12.1\nCUBLAS_STATUS_NOT_INITIALIZED",
    ),
    ("healthy", ENV + "### Bug\ntorch.compile gives a slightly different result than eager, expected 1e-6 difference"),
    ("healthy", ENV + "AssertionError: Tensor-likes are not close!\nMismatched elements: 3 / 10"),
    ("healthy", ENV + "The documentation of DataLoader says num_workers (int, optional)"),
    (
        "healthy",
        "2021-01-01 INFO epoch 1: loss 0.7, acc 0.61, 120 samples/s\n2021-01-01 INFO epoch 2: loss 0.5, acc 0.72, 121 samples/s",
    ),
    ("healthy", ENV + "torch.jit.script fails: RuntimeError: Unknown builtin op: aten::foo"),
    (
        "oom_capacity",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 7.63 GiB of which 512.12 MiB is free. Including non-PyTorch memory, this process has 7.06 GiB memory in use. Of the allocated memory 6.80 GiB is allocated by PyTorch, and 130.58 MiB is reserved by PyTorch but unallocated. stable diffusion xl 1024x1024",
    ),
    (
        "oom_fragmentation",
        "RuntimeError: CUDA out of memory. Tried to allocate 1.88 GiB (GPU 0; 10.92 GiB total capacity; 5.34 GiB already allocated; 1.02 GiB free; 9.10 GiB reserved in total by PyTorch)",
    ),
    (
        "oom_other_process",
        "torch.cuda.OutOfMemoryError: Tried to allocate 2.00 GiB. GPU 3 has a total capacty of 79.11 GiB of which 1.5 GiB is free. Process 18273 has 60.32 GiB memory in use. Process 19011 has 17.2 GiB memory in use. Of the allocated memory 16.4 GiB is allocated by PyTorch",
    ),
    (
        "shm_too_small",
        "Traceback... RuntimeError: DataLoader worker (pid 60) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit. (kubernetes)",
    ),
    (
        "nccl_timeout_one_rank_busy",
        "Some NCCL operations have failed or timed out. [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLGATHER, Timeout(ms)=1800000) ran for 1806712 ms. It happens at the evaluation, which is only done on rank 0",
    ),
    (
        "nccl_timeout_one_rank_busy",
        "accelerate: main process downloads and tokenizes the dataset for an hour, other processes: torch.distributed.DistBackendError: NCCL timeout",
    ),
    (
        "ddp_uneven_inputs",
        "Each rank reads its own list of shards, shards have different numbers of samples, training stalls at the end of the epoch with an allreduce timeout",
    ),
    ("duplicate_gpu_ranks", "NCCL WARN Duplicate GPU detected : rank 0 and rank 4 both on CUDA device 4b000"),
    ("invalid_device_ordinal", "CUDA error: invalid device ordinal. devices: 8 in config, machine has 4"),
    (
        "illegal_memory_access",
        "terminate called after throwing an instance of 'c10::Error' what(): CUDA error: an illegal memory access was encountered Exception raised from create_event_internal",
    ),
    (
        "gpu_ecc_error",
        "nvidia-smi -q: Remapped Rows ... Remapping Failure Occurred : Yes\nGPU 00000000:3B:00.0\nCUDA error: uncorrectable ECC error encountered",
    ),
    ("gpu_fallen_off_bus", "kernel: NVRM: Xid (PCI:0000:65:00): 79, pid=3133, GPU has fallen off the bus."),
    (
        "gsp_firmware_timeout",
        "kernel: NVRM: Xid (PCI:0000:17:00): 119, pid=2931418, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GSP!",
    ),
    (
        "driver_library_mismatch",
        "torch: UserWarning: Can't initialize NVML\nnvidia-smi: Failed to initialize NVML: Driver/library version mismatch NVML library version: 535.183",
    ),
    (
        "container_toolkit_missing",
        'docker: Error response from daemon: OCI runtime create failed: unable to retrieve OCI runtime error: exec: "nvidia-container-runtime": executable file not found in $PATH: unknown.',
    ),
    (
        "container_without_gpu_access",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory. I build and run it with docker run -p 8000:8000 myimage",
    ),
    ("driver_missing_or_not_loaded", "Failed to initialize NVML: Driver Not Loaded"),
    (
        "no_gpu_on_machine",
        "RuntimeError: No CUDA GPUs are available\n(Colab, after exceeding the usage limit the runtime has no GPU)",
    ),
    ("cpu_only_torch", '(base) C:\\>python -c "import torch; print(torch.__version__)"\n2.2.0+cpu\nGeForce GTX 1650'),
    (
        "cpu_only_torch",
        "conda install pytorch torchvision -c conda-forge; torch.cuda.is_available() False; conda list: pytorch 2.0.0 cpu_generic_py310h",
    ),
    (
        "gpu_newer_than_wheel_archs",
        "RTX 5060 Ti, torch 2.6.0+cu124: CUDA error: no kernel image is available for execution on the device",
    ),
    (
        "gpu_newer_than_wheel_archs",
        "/usr/local/lib/python3.8/dist-packages/torch/cuda/__init__.py:143: UserWarning: NVIDIA H100 PCIe with CUDA capability sm_90 is not compatible with the current PyTorch installation. The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86.",
    ),
    (
        "torchvision_torch_mismatch",
        "torchvision 0.16.2 requires torch==2.1.2, but you have torch 2.3.0 which is incompatible.\nRuntimeError: operator torchvision::nms does not exist",
    ),
    (
        "library_path_shadows_bundled",
        "ImportError: /opt/conda/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
    ),
    ("library_path_shadows_bundled", "libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent"),
    (
        "bundled_cuda_library_missing",
        'OSError: libcurand.so.10: cannot open shared object file: No such file or directory\n  File "/usr/lib/python3/dist-packages/torch/__init__.py", line 229, in _load_global_deps',
    ),
    (
        "bundled_cuda_library_missing",
        "Could not locate cudnn_ops64_9.dll. Please make sure it is in your library path! Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor",
    ),
    (
        "extension_built_for_other_cuda",
        "bitsandbytes: CUDA Setup failed despite GPU being available. libbitsandbytes_cuda118.so not found",
    ),
    (
        "extension_missing_arch",
        "error in modulated_deformable_im2col_cuda: no kernel image is available for execution on the device (mmcv/_ext)",
    ),
    (
        "fabric_manager_not_running",
        "torch.cuda.is_available(): CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized (H100 SXM in VM)",
    ),
    (
        "mig_enabled_no_instance",
        "nvidia-smi shows MIG M. Enabled and 'No MIG devices found', torch says no CUDA GPUs are available",
    ),
    (
        "visible_devices_hides_gpu",
        "CUDA_VISIBLE_DEVICES=2 on a machine with two cards: RuntimeError: No CUDA GPUs are available\nGPU 0: A\nGPU 1: B",
    ),
    (
        "secure_boot_blocks_module",
        "nvidia: loading out-of-tree module taints kernel. Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
    ),
    (
        "fp16_overflow_nan",
        "fairseq: NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 0.0001220703125 ... FloatingPointError: Minimum loss scale reached",
    ),
    ("amp_fp16_params_with_scaler", 'raise ValueError("Attempting to unscale FP16 gradients.")'),
    (
        "half_on_cpu",
        "RuntimeError: \"LayerNormKernelImpl\" not implemented for 'Half' when running on my laptop without GPU",
    ),
    (
        "training_on_cpu",
        "WARNING: You are running on CPU although a GPU (Tesla T4) is available; device = torch.device('cpu')",
    ),
    (
        "too_few_workers",
        "UserWarning: The 'val_dataloader' does not have many workers which may be a bottleneck. Consider increasing the value of the `num_workers` argument` to `num_workers=7`",
    ),
    (
        "dataloader_bottleneck",
        "[mmengine] Epoch(train) [1][  50/1000]  lr: 1e-2 eta: 0:50:10 time: 1.9011  data_time: 1.5022  memory: 5120 loss: 2.1\n[mmengine] Epoch(train) [1][ 100/1000]  lr: 1e-2 eta: 0:50:10 time: 1.8011  data_time: 1.4022  memory: 5120 loss: 2.0",
    ),
    ("slow_storage", "reading jpegs from an S3 bucket mounted with s3fs; the GPU is idle most of the time"),
    (
        "pcie_link_degraded",
        "nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.width.max: 4, 16 while training; host to device copies take 4x longer, PCIe x4 instead of x16",
    ),
    ("thermal_throttle", "The fan failed; temperature 95 C, SM clock falls to 139 MHz, throughput drops to 10%"),
    (
        "python_unsupported_by_wheel",
        "ERROR: torch-1.12.1+cu113-cp39-cp39-linux_x86_64.whl is not a supported wheel on this platform.",
    ),
    (
        "windows_dll_dependency_missing",
        'OSError: [WinError 127] The specified procedure could not be found. Error loading "C:\\Python39\\lib\\site-packages\\torch\\lib\\cudnn_cnn_infer64_8.dll" or one of its dependencies.',
    ),
    ("state_dict_module_prefix", 'Unexpected key(s) in state_dict: "_orig_mod.layer1.weight", "_orig_mod.layer1.bias"'),
    (
        "port_in_use",
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:12355 (errno: 98 - Address already in use).",
    ),
    (
        "leak_graph_kept",
        "VRAM usage grows by 50MB per step. I store all outputs in a list for the metrics: all_outputs.append(output)",
    ),
    ("host_oom_killed", "Your session crashed after using all available RAM."),
    ("host_oom_killed", "srun: error: node07: task 0: Out Of Memory\nslurmstepd: error: Detected 1 oom-kill event(s)"),
    (
        "wsl_windows_or_kernel_too_old",
        "WSL: cat /proc/version -> Linux version 4.4.0-19041-Microsoft; torch.cuda.is_available() False",
    ),
    (
        "jetson_generic_wheel",
        "NVIDIA Jetson Nano, aarch64, Python 3.8 venv, pip install torch -> torch.cuda.is_available() False",
    ),
    (
        "wrong_accelerator_build",
        "PyTorch version: 2.4.0+cu121\nROCM used to build PyTorch: N/A\nIs CUDA available: False\nGPU: AMD Radeon RX 7800 XT",
    ),
    (
        "compute_mode_exclusive",
        "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable; nvidia-smi -c shows EXCLUSIVE_PROCESS",
    ),
    (
        "uvm_broken_after_suspend",
        "cuda runtime error (30) : unknown error at THCGeneral.c; it works again after a reboot or rmmod nvidia_uvm; happens after suspend",
    ),
    ("too_many_open_files", "RuntimeError: received 0 items of ancdata (num_workers=16)"),
    ("compile_recompiles", "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with one_graph=True"),
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_a_fault_is_known_by_its_mechanism_however_it_is_said(cause, text):
    report = report_of(text)
    if cause == "healthy":
        assert report.verdict in ("healthy", "warning"), report.findings
    else:
        assert report.findings[0].id == cause, [(f.id, f.confidence) for f in report.findings]
