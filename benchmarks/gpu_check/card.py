"""Small questions to the GPUs, each asked in a separate process: a driver that hangs takes only that one along."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence


def parse_held(output: str) -> Sequence[int | None]:
    """What `held` printed."""
    found = json.loads(output)
    return [None if one is None else int(one) for one in found]


def held() -> list[int | None]:
    """Bytes in use on each GPU by NVML's count; None where the GPU does not tell."""
    import pynvml

    pynvml.nvmlInit()
    found: list[int | None] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))
        except pynvml.NVMLError:
            found.append(None)
    return found


def alive() -> None:
    """Run a kernel of one element on every GPU; torch's error where one no longer can."""
    import torch

    for index in range(torch.cuda.device_count()):
        assert torch.ones(1, device=f"cuda:{index}").add(1).item() == 2
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")


if __name__ == "__main__":
    if sys.argv[1] == "held":
        print(json.dumps(held()))
    else:
        alive()
