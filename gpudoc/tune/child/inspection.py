"""Facts on workload and device that a search needs before its first trial, collected in a separate process."""

from __future__ import annotations

import torch

from gpudoc.process.memory import read_process_memory
from gpudoc.train import limits
from gpudoc.train.start.identity import hardware_here, workload_key
from gpudoc.train.start.levers import has_torchao, may_foreach, may_fuse, small_twin
from gpudoc.train.step.precision import has_native_bf16
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.rank import take_device
from gpudoc.tune.trial.failure import describe_failure
from gpudoc.tune.trial.wire import Emit, Inspection, RankEnd, RankPlace, TorchCard
from gpudoc.workload.recompute import can_recompute, find_blocks, policies_for

_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


def inspect_workload(prepared: Prepared, place: RankPlace, emit: Emit) -> None:
    """Emit fingerprints, sizes and the device as torch sees it; or the user's own error."""
    torch.set_num_threads(prepared.num_threads)
    baseline = read_process_memory().data_bytes
    try:
        device = take_device(place)
        if place.limit_bytes is not None:
            limits.enforce(place.limit_bytes, device)
        workload = prepared.workload
        model = workload.build_model()
        found = Inspection(
            num_samples=prepared.samples.count,
            num_threads=prepared.num_threads,
            baseline_bytes=baseline,
            parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
            workload=workload_key(workload, model),
            hardware=hardware_here(device, place.limit_bytes),
            torch=str(torch.__version__),
            can_recompute=can_recompute(model),
            has_policies=any(policies_for(model)),
            can_fuse=may_fuse(workload, model, device),
            has_images=any(isinstance(m, torch.nn.Conv2d) for m in model.modules()),
            has_bf16=has_native_bf16(device),
            can_foreach=may_foreach(workload, model),
            can_shrink=small_twin(workload) is not None and has_torchao(),
            has_blocks=bool(find_blocks(model)),
            has_convolutions=any(isinstance(m, _CONVOLUTIONS) for m in model.modules()),
            sizes_differ=prepared.samples.sizes_differ,
            matmul_precision=_matmul_precision(),
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            card=_card(device) if device.type == "cuda" else None,
        )
    except Exception as problem:
        emit(describe_failure(problem))
        return
    emit(found)
    emit(RankEnd())


def _matmul_precision() -> str:
    """Torch's float32_matmul_precision, 'unknown' if the user's code set parts of it separately."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "unknown"


def _card(device: torch.device) -> TorchCard:
    # first let the context and the libraries' handles take their memory, as in training
    torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
    torch.cuda.synchronize(device)
    free, _ = torch.cuda.mem_get_info(device)
    properties = torch.cuda.get_device_properties(device)
    return TorchCard(
        name=properties.name,
        # ROCm derives it from the name of AMD's architecture: gfx90a is not a Hopper although it reads (9, 0)
        capability=None if torch.version.hip else (properties.major, properties.minor),
        free_bytes=free + torch.cuda.memory_reserved(device),
        count=torch.cuda.device_count(),
    )
