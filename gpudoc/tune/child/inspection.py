"""What a search must know of workload and device before its first trial, found out in a process of its own."""

from __future__ import annotations

import torch

from gpudoc.train.start.build import may_fuse
from gpudoc.train.start.identity import hardware_here, workload_key
from gpudoc.train.step.precision import has_native_bf16
from gpudoc.tune.child.probe import Emit, Prepared
from gpudoc.tune.child.rank import Place, take_device
from gpudoc.tune.trial import limit
from gpudoc.tune.trial.failure import describe_failure
from gpudoc.tune.trial.messages import End
from gpudoc.workload.recompute import can_recompute


def inspect_workload(prepared: Prepared, place: Place, emit: Emit) -> None:
    """Emit a `facts` event: fingerprints, sizes and the device as torch sees it; or the user's own error."""
    torch.set_num_threads(prepared.num_threads)
    baseline = limit.read_process_memory().data_bytes
    try:
        device = take_device(place)
        limit.apply_limit(place.device, place.limit_bytes)
        workload = prepared.workload
        model = workload.build_model()
        facts = {
            "event": "facts",
            "baseline_bytes": baseline,
            "workload": workload_key(workload, model).model_dump(mode="json"),
            "parameters": sum(p.numel() for p in model.parameters()),
            "parameter_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "can_recompute": can_recompute(model),
            "can_fuse": may_fuse(workload, model, device),
            "has_images": any(isinstance(m, torch.nn.Conv2d) for m in model.modules()),
            "torch": torch.__version__,
            "hardware": hardware_here(device, place.limit_bytes).model_dump(mode="json"),
            **_device_facts(device),
        }
    except Exception as problem:
        emit(describe_failure(problem))
        return
    emit(facts)
    emit({"event": "end", "end": End.FITS.value, "detail": ""})


def _device_facts(device: torch.device) -> dict[str, object]:
    if device.type != "cuda":
        return {"device_name": "", "bf16": has_native_bf16(device)}
    # the context and the libraries' handles take their share first, as they do in training
    torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    properties = torch.cuda.get_device_properties(device)
    return {
        "device_name": properties.name,
        # ROCm fills it from the name of AMD's architecture: gfx90a is no Hopper although it reads (9, 0)
        "capability": None if torch.version.hip else [properties.major, properties.minor],
        "total_bytes": total,
        "free_bytes": free + torch.cuda.memory_reserved(device),
        "cuda": torch.version.cuda or "",
        "count": torch.cuda.device_count(),
        "bf16": has_native_bf16(device),
    }
