"""The 16-bit type that a card multiplies fast: bf16 from capability 8.0 on, fp16 before."""

import torch


def half_of(capability):
    """(its name in bench's rows, torch's type)."""
    return ("bf16", torch.bfloat16) if capability >= (8, 0) else ("fp16", torch.float16)
