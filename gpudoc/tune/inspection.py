"""What a search must know of workload and device before its first trial, found out in a process of its own."""

from __future__ import annotations

from gpudoc.tune.probe import Emit, Place, Prepared, apply_limit, describe_failure
from gpudoc.tune.trial import End


def inspect_workload(prepared: Prepared, place: Place, emit: Emit) -> None:
    """Emit a `facts` event: fingerprints, sizes and the device as torch sees it; or the user's own error."""
    import torch

    from gpudoc.tune import limit
    from gpudoc.workload.build import data_fingerprint, model_fingerprint

    torch.set_num_threads(prepared.num_threads)
    device = torch.device(place.device)
    baseline = limit.read_process_memory().data_bytes
    try:
        apply_limit(place)
        workload = prepared.workload
        model = workload.build_model()
        batch = prepared.samples.typical(1)
        facts = {
            "event": "facts",
            "baseline_bytes": baseline,
            "model": model_fingerprint(model),
            "data": data_fingerprint(workload.dataset),
            "signature": workload.signature(),
            "inputs": input_signature(batch),
            "parameters": sum(p.numel() for p in model.parameters()),
            "parameter_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "has_images": any(isinstance(m, torch.nn.Conv2d) for m in model.modules()),
            "torch": torch.__version__,
            **_device_facts(device),
        }
    except Exception as problem:
        emit(describe_failure(problem))
        return
    emit(facts)
    emit({"event": "end", "end": End.FITS.value, "detail": ""})


def input_signature(batch: object) -> str:
    """The types and shapes of a batch's tensors without the batch dimension: 'int64[128], int64[128]'."""
    from gpudoc.workload.batch import tensors_in

    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape[1:])}" for t in tensors_in(batch))


def _device_facts(device: object) -> dict[str, object]:
    import torch

    assert isinstance(device, torch.device)
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
