"""What a search must know of workload and device before its first trial, found out in a process of its own."""

from __future__ import annotations

import torch

from gpudoc.facts.host import collect as collect_host
from gpudoc.facts.model import Absent
from gpudoc.profile.model import Hardware, WorkloadKey
from gpudoc.tune import limit
from gpudoc.tune.probe import Emit, Place, Prepared, apply_limit, describe_failure
from gpudoc.tune.trial import End
from gpudoc.workload.batch import tensors_in
from gpudoc.workload.build import data_fingerprint, model_fingerprint


def inspect_workload(prepared: Prepared, place: Place, emit: Emit) -> None:
    """Emit a `facts` event: fingerprints, sizes and the device as torch sees it; or the user's own error."""
    torch.set_num_threads(prepared.num_threads)
    device = torch.device(place.device)
    baseline = limit.read_process_memory().data_bytes
    try:
        apply_limit(place)
        workload = prepared.workload
        model = workload.build_model()
        batch = prepared.samples.typical(1)
        key = WorkloadKey(
            config=workload.name,
            model=f"{model_fingerprint(model)}-{workload.signature()}",
            data=data_fingerprint(workload.dataset),
            optimizer=workload.config.optimizer.target,
            inputs=input_signature(batch),
            global_batch=None if workload.config.train.global_batch == "auto" else workload.config.train.global_batch,
        )
        facts = {
            "event": "facts",
            "baseline_bytes": baseline,
            "workload": key.model_dump(mode="json"),
            "parameters": sum(p.numel() for p in model.parameters()),
            "parameter_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "has_images": any(isinstance(m, torch.nn.Conv2d) for m in model.modules()),
            "torch": torch.__version__,
            "hardware": _hardware(device, place.limit_bytes).model_dump(mode="json"),
            **_device_facts(device),
        }
    except Exception as problem:
        emit(describe_failure(problem))
        return
    emit(facts)
    emit({"event": "end", "end": End.FITS.value, "detail": ""})


def input_signature(batch: object) -> str:
    """The types and shapes of a batch's tensors without the batch dimension: 'int64[128], int64[128]'."""
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape[1:])}" for t in tensors_in(batch))


def _hardware(device: torch.device, limit_bytes: int | None) -> Hardware:
    """The kind of machine in a profile's words."""
    host = collect_host()
    ram = None if isinstance(host.memory_total_bytes, Absent) else host.memory_total_bytes
    shared = None if isinstance(host.shm_total_bytes, Absent) else host.shm_total_bytes
    common = {
        "torch": torch.__version__,
        "cpu_cores": None if isinstance(host.cpus_usable, Absent) else host.cpus_usable,
        "ram_bytes": ram,
        "shm_bytes": shared,
    }
    if device.type != "cuda":
        name = "" if isinstance(host.cpu_model, Absent) else host.cpu_model
        return Hardware.model_validate({"device": "cpu", "name": name, "memory_bytes": limit_bytes or ram, **common})
    properties = torch.cuda.get_device_properties(device)
    own = {
        "device": "cuda",
        "name": properties.name,
        "capability": (properties.major, properties.minor),
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
    }
    return Hardware.model_validate({**own, **common})


def _device_facts(device: torch.device) -> dict[str, object]:
    if device.type != "cuda":
        return {"device_name": "", "bf16": bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())}
    # the context and the libraries' handles take their share first, as they do in training
    torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    properties = torch.cuda.get_device_properties(device)
    return {
        "device_name": properties.name,
        "capability": [properties.major, properties.minor],
        "total_bytes": total,
        "free_bytes": free + torch.cuda.memory_reserved(device),
        "cuda": torch.version.cuda or "",
        "count": torch.cuda.device_count(),
        "bf16": torch.cuda.is_bf16_supported(including_emulation=False),
    }
