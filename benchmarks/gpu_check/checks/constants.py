"""The bytes that gpudoc guesses beside those that the card takes: memory, context, workspaces, planned peaks."""

from __future__ import annotations

import gc
import sys

import pynvml
import torch
from torch import nn

from benchmarks.gpu_check.model import Comparison, Result
from gpudoc.knowledge.cards import context_bytes, cublas_workspace_bytes, find_card
from gpudoc.units import GIB, MIB

# the nets of the planner's tests whose peaks are compared: (ratio allowed either way, name); cuDNN's workspaces, which
# the plan leaves out, show in the one that convolves
NETS = ((0.05, "gpt2"), (0.05, "bert"), (0.25, "resnet"))


class Ledger:
    """What the card says is in use, since before this process had a context; None where NVML does not tell."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        self._before = [self._used(handle) for handle in self._handles]
        self._index = 0

    def follow(self, pci_bus: int) -> None:
        """Look at the GPU that torch computes on from now on: NVML and CUDA may number them differently."""
        buses = [pynvml.nvmlDeviceGetPciInfo(handle).bus for handle in self._handles]
        self._index = buses.index(pci_bus) if pci_bus in buses else 0

    def taken(self) -> int | None:
        """Bytes that came into use since."""
        now, before = self._used(self._handles[self._index]), self._before[self._index]
        return None if now is None or before is None else now - before

    def _used(self, handle: object) -> int | None:
        try:
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        except pynvml.NVMLError:
            return None


def train_a_little(dtype: torch.dtype) -> None:
    """Kernels of every kind that a training loads: products, convolution, attention, reductions, fused AdamW."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 30 * 30, 64), nn.LayerNorm(64), nn.GELU())
    net = nn.Sequential(net, nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    for _ in range(3):
        with torch.autocast("cuda", dtype=dtype):
            loss = nn.functional.cross_entropy(net(torch.randn(8, 3, 32, 32, device="cuda")), torch.arange(8).cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def compare_context(ledger: Ledger, result: Result, capability: tuple[int, int]) -> None:
    train_a_little(torch.bfloat16 if capability >= (8, 0) else torch.float16)
    taken = ledger.taken()
    if taken is None:
        result.facts["context"] = "not known: NVML does not tell the memory in use"
        return
    held = taken - torch.cuda.memory_reserved()
    result.comparisons.append(
        Comparison(name="CUDA context", guessed=context_bytes(capability) / MIB, measured=held / MIB)
    )


def compare_allocations(ledger: Ledger, result: Result) -> None:
    """Whether the card takes as many bytes as PyTorch's allocator says."""
    before, reserved = ledger.taken(), torch.cuda.memory_reserved()
    free = torch.cuda.mem_get_info()[0]
    size = min(GIB, free // 4)
    kept = [torch.empty(size // 4, dtype=torch.uint8, device="cuda") for _ in range(4)]
    asked = torch.cuda.memory_reserved() - reserved
    after = ledger.taken()
    if before is not None and after is not None:
        result.comparisons.append(
            Comparison(
                name="what the card takes for the blocks that PyTorch reserves", guessed=asked / MIB,
                measured=(after - before) / MIB, low=0.97, high=1.03,
            )
        )  # fmt: skip
    gone = free - torch.cuda.mem_get_info()[0]
    result.comparisons.append(
        Comparison(
            name="what CUDA says is no longer free after them", guessed=asked / MIB, measured=gone / MIB,
            low=0.97, high=1.03,
        )
    )  # fmt: skip
    del kept
    torch.cuda.empty_cache()


def compare_workspace(result: Result, capability: tuple[int, int]) -> None:
    """Before anything else has multiplied: the first product takes cuBLAS's workspace from the allocator."""
    left, right = (torch.ones(256, 256, device="cuda") for _ in range(2))
    before = torch.cuda.memory_allocated()
    product = left @ right
    torch.cuda.synchronize()
    more = torch.cuda.memory_allocated() - before - product.untyped_storage().nbytes()
    guessed = cublas_workspace_bytes(capability)
    result.comparisons.append(Comparison(name="workspace of cuBLAS", guessed=guessed / MIB, measured=more / MIB))


def compare_plans(result: Result, nets: tuple[tuple[float, str], ...]) -> None:
    """Allocated and reserved peaks of the planner's nets, as its own tests measure them."""
    from tests.gpu.test_plan_peaks import BATCH, predicted, run_on_gpu
    from tests.plan.zoo import recipes

    for allowed, name in nets:
        gc.collect()
        measured = run_on_gpu(recipes("fp32", scale=4)[name], BATCH)
        for kind, guess, peak in zip(("allocated", "reserved"), predicted(name, "fp32", BATCH), measured, strict=True):
            slack = allowed if kind == "allocated" else max(allowed, 0.1)
            result.comparisons.append(
                Comparison(
                    name=f"planned {kind} peak of {name}", guessed=guess / MIB, measured=peak / MIB,
                    low=1 - slack, high=1 + slack,
                )
            )  # fmt: skip


def compare_card(result: Result) -> None:
    properties = torch.cuda.get_device_properties(0)
    card = find_card(properties.name)
    guessed = None if card is None else card.memory_bytes / MIB
    measured = properties.total_memory / MIB
    result.comparisons.append(
        Comparison(name=f"memory of {properties.name}", guessed=guessed, measured=measured, low=0.97, high=1.03)
    )


def main() -> None:
    ledger, result = Ledger(), Result()
    properties = torch.cuda.get_device_properties(0)
    ledger.follow(getattr(properties, "pci_bus_id", -1))
    capability = (properties.major, properties.minor)
    compare_card(result)
    compare_workspace(result, capability)
    compare_context(ledger, result, capability)
    compare_allocations(ledger, result)
    compare_plans(result, NETS[:1] if "--quick" in sys.argv else NETS)
    print(result.to_line())


if __name__ == "__main__":
    main()
