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
        "label_out_of_range",
        '../aten/src/ATen/native/cuda/ScatterGatherKernel.cu:144: Assertion `idx_dim >= 0 && idx_dim < index_size && "index out of bounds"` failed.   true_dist.scatter_(1, labels.unsqueeze(1), 1)',
    ),
    (
        "embedding_index_out_of_range",
        '../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.  position_ids = self.position_embeddings(pos)',
    ),
    ("fp16_overflow_nan", "{'loss': nan, 'grad_norm': nan, 'learning_rate': 2e-05} --fp16 True"),
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
        "driver_too_old",
        "Driver Version: 418.87.00    CUDA Version: 10.1\npip install torch==1.12.1+cu113\n>>> torch.cuda.is_available()\nFalse",
    ),
    (
        "driver_too_old",
        "nvidia-smi: CUDA Version: 11.2 Driver Version: 460.91.03\n>>> torch.__version__\n'2.1.2+cu121'\n>>> torch.cuda.is_available()\nFalse",
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
        "library_path_shadows_bundled",
        "Could not load library libcudnn_cnn_infer.so.8. Error: /usr/lib/x86_64-linux-gnu/libcudnn_cnn_infer.so.8: undefined symbol: _ZN5cudnn3ops..., version libcudnn_ops_infer.so.8",
    ),
    (
        "extension_built_for_other_cuda",
        "ImportError: libcudart.so.12: cannot open shared object file (import mmcv._ext)",
    ),
    ("gpu_ecc_error", "Xid (PCI:0000:b1:00): 94, pid=37, Contained: SM. RST: No, D-RST: No"),
    ("thermal_throttle", "GPU clocks drop from 1900 to 300 MHz after a few minutes, temp 94 C"),
    (
        "worker_copy_on_write_growth",
        "CPU memory usage increases during training until all 128GB RAM is used, num_workers=8, dataset stores annotations in a list",
    ),
    (
        "visible_devices_hides_gpu",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n...\nRuntimeError: No CUDA GPUs are available",
    ),
    ("extension_torch_abi_mismatch", "libtorchaudio.so: undefined symbol: _ZNK3c105Error4whatEv"),
    ("extra_contexts_on_gpu0", "with DDP, each process allocates about 600MB on GPU 0 in addition to its own GPU"),
    ("oom_masked_as_library_error", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    ("oom_masked_as_library_error", "RuntimeError: GET was unable to find an engine to execute this computation"),
    (
        "oom_optimizer_state",
        "File torch/optim/adam.py line 141 in step\n state['exp_avg'] = torch.zeros_like(p, memory_format=torch.preserve_format)\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB",
    ),
    (
        "oom_fragmentation",
        "CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 23.65 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 23.2 GiB memory in use. Of the allocated memory 15.10 GiB is allocated by PyTorch, and 7.60 GiB is reserved by PyTorch but unallocated.",
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
        "nccl_timeout_one_rank_busy",
        "[rank1]:[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST, Timeout(ms)=1800000)\nrank 0 is still mapping the dataset: Map:  63%|######",
    ),
    ("nccl_p2p_hang", "# 2x A6000, DDP stuck after 'Initializing distributed', NCCL_P2P_DISABLE=1 helps"),
    (
        "nccl_p2p_hang",
        "DataParallel on two RTX 3090 never returns from the first forward; AMD Threadripper with IOMMU enabled",
    ),
    (
        "extra_contexts_on_gpu0",
        "|    0      1201      C   python    8011MiB |\n|    0      1202      C   python    513MiB |\n|    0      1203      C   python    513MiB |\n|    1      1202      C   python    8011MiB |\n|    2      1203      C   python    8011MiB |",
    ),
    (
        "thermal_throttle",
        "nvidia-smi -q -d PERFORMANCE\n    Clocks Throttle Reasons\n        HW Thermal Slowdown : Active\n        SW Thermal Slowdown : Active\n speed drops by half after 10 min",
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
    ("fp16_overflow_nan", "training with amp: loss becomes nan after 300 steps, fp32 is fine"),
    (
        "fp16_overflow_nan",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\n[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1",
    ),
    (
        "too_many_workers",
        "UserWarning: This DataLoader will create 12 worker processes in total. Our suggested max number of worker in current system is 2, which is smaller than what this DataLoader is going to create.",
    ),
    ("gpu_hardware_fault", "NVRM: Xid (PCI:0000:04:00): 62, pid=1, 206b(2c88) 00000000 00000000"),
    (
        "wrong_accelerator_build",
        "pip install torch on a machine with Radeon RX 6800; RuntimeError: Found no NVIDIA driver on your system",
    ),
    (
        "extension_torch_abi_mismatch",
        "ImportError: .../torch_scatter/_scatter_cuda.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs",
    ),
    (
        "bundled_cuda_library_missing",
        "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory\n  File .../torch/__init__.py, line 367, in <module>\n    from torch._C import *",
    ),
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
        "nccl_timeout_one_rank_busy",
        "Some NCCL operations have failed or timed out. [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLGATHER, Timeout(ms)=1800000) ran for 1806712 ms. It happens at the evaluation, which is only done on rank 0",
    ),
    (
        "nccl_timeout_one_rank_busy",
        "accelerate: main process downloads and tokenizes the dataset for an hour, other processes: torch.distributed.DistBackendError: NCCL timeout",
    ),
    ("cpu_only_torch", '(base) C:\\>python -c "import torch; print(torch.__version__)"\n2.2.0+cpu\nGeForce GTX 1650'),
    (
        "gpu_newer_than_wheel_archs",
        "RTX 5060 Ti, torch 2.6.0+cu124: CUDA error: no kernel image is available for execution on the device",
    ),
    (
        "gpu_newer_than_wheel_archs",
        "/usr/local/lib/python3.8/dist-packages/torch/cuda/__init__.py:143: UserWarning: NVIDIA H100 PCIe with CUDA capability sm_90 is not compatible with the current PyTorch installation. The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86.",
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
        "visible_devices_hides_gpu",
        "CUDA_VISIBLE_DEVICES=2 on a machine with two cards: RuntimeError: No CUDA GPUs are available\nGPU 0: A\nGPU 1: B",
    ),
    (
        "dataloader_bottleneck",
        "[mmengine] Epoch(train) [1][  50/1000]  lr: 1e-2 eta: 0:50:10 time: 1.9011  data_time: 1.5022  memory: 5120 loss: 2.1\n[mmengine] Epoch(train) [1][ 100/1000]  lr: 1e-2 eta: 0:50:10 time: 1.8011  data_time: 1.4022  memory: 5120 loss: 2.0",
    ),
    (
        "pcie_link_degraded",
        "nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.width.max: 4, 16 while training; host to device copies take 4x longer, PCIe x4 instead of x16",
    ),
    ("thermal_throttle", "The fan failed; temperature 95 C, SM clock falls to 139 MHz, throughput drops to 10%"),
    (
        "leak_graph_kept",
        "VRAM usage grows by 50MB per step. I store all outputs in a list for the metrics: all_outputs.append(output)",
    ),
    (
        "wrong_accelerator_build",
        "PyTorch version: 2.4.0+cu121\nROCM used to build PyTorch: N/A\nIs CUDA available: False\nGPU: AMD Radeon RX 7800 XT",
    ),
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_a_fault_is_known_by_its_mechanism_however_it_is_said(cause, text):
    report = report_of(text)
    if cause == "healthy":
        assert report.verdict in ("healthy", "warning"), report.findings
    else:
        assert report.findings[0].id == cause, [(f.id, f.confidence) for f in report.findings]
