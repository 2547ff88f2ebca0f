"""Every script here with the cause that was planted in it; `healthy` where none was."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    name: str
    expected: str
    framework: str = "torch"
    ranks: int = 1
    mended: bool = False
    quota: float | None = None
    gpus: int = 0


SCRIPTS = (
    Script("workers_none", "too_few_workers", mended=True),
    Script("workers_one", "too_few_workers", mended=True),
    Script("workers_two_latency", "too_few_workers", mended=True),
    Script("workers_none_light_step", "too_few_workers", mended=True),
    Script("workers_too_many", "too_many_workers"),
    Script("decode_heavy", "decode_bound"),
    Script("decode_augment", "decode_bound"),
    Script("storage_direct", "slow_storage"),
    Script("storage_remote", "slow_storage"),
    Script("workers_recreated", "workers_recreated_each_epoch", mended=True),
    Script("workers_recreated_spawn", "workers_recreated_each_epoch", mended=True),
    Script("worker_slow_one", "slow_worker"),
    Script("collate_main", "collate_in_main_process", mended=True),
    Script("python_metric", "python_bound"),
    Script("python_replay", "python_bound"),
    Script("python_sleep", "python_bound"),
    Script("logging_prints", "logging_each_step"),
    Script("logging_module", "logging_each_step"),
    Script("checkpoint_each", "checkpoint_too_often"),
    Script("oversubscribed", "cpu_oversubscription"),
    Script("oversubscribed_workers", "cpu_oversubscription"),
    Script("healthy_two_threads", "cgroup_cpu_limit", quota=0.3),
    Script("leak_list", "host_memory_leak"),
    Script("leak_graph", "leak_graph_kept"),
    Script("leak_worker", "host_memory_leak"),
    Script("leak_copied_pages", "worker_copy_on_write_growth"),
    Script("recompiles", "compile_recompiles"),
    Script("hang_ranks", "job_hung", ranks=2),
    Script("hang_alone", "job_hung"),
    Script("ddp_communication", "communication_bound", ranks=2),
    Script("collective_metrics", "communication_bound", ranks=2),
    Script("lightning_workers_none", "too_few_workers", "lightning", mended=True),
    Script("lightning_logging", "logging_each_step", "lightning"),
    Script("lightning_checkpoint", "checkpoint_too_often", "lightning"),
    Script("lightning_python", "python_bound", "lightning"),
    Script("lightning_recreated", "workers_recreated_each_epoch", "lightning", mended=True),
    Script("accelerate_workers_none", "too_few_workers", "accelerate", mended=True),
    Script("accelerate_checkpoint", "checkpoint_too_often", "accelerate"),
    Script("accelerate_python", "python_bound", "accelerate"),
    Script("transformers_workers_none", "too_few_workers", "transformers", mended=True),
    Script("transformers_collate", "collate_in_main_process", "transformers"),
    Script("transformers_checkpoint", "checkpoint_too_often", "transformers"),
    Script("transformers_logging", "logging_each_step", "transformers"),
    Script("timm_workers_none", "too_few_workers", "timm", mended=True),
    Script("gpu_sync", "gpu_sync_each_step", gpus=1),
    Script("gpu_launch", "launch_bound", gpus=1),
    Script("gpu_copies", "pageable_copies", gpus=1),
    Script("gpu_leak", "gpu_memory_leak", gpus=1),
    Script("gpu_dataparallel", "dataparallel_imbalance", gpus=2),
    Script("gpu_healthy", "healthy", gpus=1),
    Script("healthy_conv", "healthy"),
    Script("healthy_mlp", "healthy"),
    Script("healthy_own_ops", "healthy"),
    Script("healthy_accumulation", "healthy"),
    Script("healthy_item_each_step", "healthy"),
    Script("healthy_transformer_layers", "healthy"),
    Script("healthy_two_threads", "healthy"),
    Script("healthy_ddp", "healthy", ranks=2),
    Script("healthy_lightning", "healthy", "lightning"),
    Script("healthy_accelerate", "healthy", "accelerate"),
    Script("healthy_transformers", "healthy", "transformers"),
    Script("healthy_timm", "healthy", "timm"),
)
