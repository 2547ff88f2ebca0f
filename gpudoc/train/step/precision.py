"""Chooses the number format of training on a device, with the reason; the only place that creates autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from gpudoc.errors import GpudocError

Name = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True)
class Precision:
    """The format of forward and backward; weights and optimizer state stay fp32."""

    name: Name
    why: str

    @property
    def dtype(self) -> torch.dtype:
        """The format as torch's type."""
        match self.name:
            case "bf16":
                return torch.bfloat16
            case "fp16":
                return torch.float16
            case "fp32":
                return torch.float32

    @property
    def needs_scaler(self) -> bool:
        """Whether gradients underflow without loss scaling."""
        return self.name == "fp16"

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The context of a forward pass; nothing for fp32."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)


def choose(asked: str, device: torch.device) -> Precision:
    """The precision for `asked` (auto, bf16, fp16, fp32): bf16 where native, else fp16 on a GPU, else fp32."""
    match asked:
        case "fp32":
            return Precision("fp32", "as asked")
        case "bf16":
            native = has_native_bf16(device)
            return Precision(
                "bf16", "as requested" if native else "as requested, although this device only emulates bf16"
            )
        case "fp16" if device.type == "cpu":
            raise GpudocError("fp16 does not train on a CPU", hint="--precision bf16 or fp32")
        case "fp16":
            return Precision("fp16", "as requested, with loss scaling")
        case "auto":
            return _best(device)
        case _:
            raise GpudocError(f"no such precision: {asked!r}", hint="--precision auto, bf16, fp16 or fp32")


def has_native_bf16(device: torch.device) -> bool:
    """Whether the device computes bf16 in hardware; older GPUs and CPUs emulate it, slower than fp32."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            try:
                return bool(torch.cuda.is_bf16_supported(including_emulation=False))
            except TypeError:
                return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
        return any(check() for check in checks if check is not None)
    return False


def _best(device: torch.device) -> Precision:
    if has_native_bf16(device):
        return Precision("bf16", f"this {device.type.upper()} computes bf16 natively")
    if device.type == "cuda":
        return Precision("fp16", "this GPU has no native bf16; fp16 with loss scaling")
    return Precision("fp32", f"this {device.type.upper()} has no native bf16")
