from __future__ import annotations

from gpudoc.facts.environment import read_environment


def test_what_changes_a_gpus_work_is_kept_and_sorted():
    variables = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "EDITOR": "vi", "LD_LIBRARY_PATH": "/x"}
    assert list(read_environment(variables)) == ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NCCL_DEBUG"]


def test_secrets_are_never_kept():
    variables = {"NVIDIA_API_KEY": "k", "TORCH_HUB_TOKEN": "t", "CUDA_PASSWORD": "p", "SLURM_JOB_USER": "me"}
    assert read_environment(variables) == {}
