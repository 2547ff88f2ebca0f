"""The environment variables that change what a GPU, a CUDA library or a trainer does."""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = (
    "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "HIP_", "ROCR_", "HSA_",
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "TRITON_", "ACCELERATE_", "GLOO_", "UCX_", "MALLOC_", "XLA_",
    "SLURM_GPUS", "SLURM_CPUS", "SLURM_MEM", "SLURM_NTASKS", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
)  # fmt: skip
_NAMES = (
    "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONNOUSERSITE", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "TMPDIR",
    "COLAB_RELEASE_TAG", "COLAB_GPU", "KAGGLE_KERNEL_RUN_TYPE", "KUBERNETES_SERVICE_HOST", "GPU_DEVICE_ORDINAL",
    "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_PROCID", "SLURM_LOCALID",
)  # fmt: skip
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "ACCESS_KEY", "CREDENTIAL")


def read_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of `variables` that matter here (`env | grep -e CUDA -e NCCL ...`); secrets are never kept."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if (name in _NAMES or name.startswith(_PREFIXES)) and not any(word in name.upper() for word in _SECRET)
    }
