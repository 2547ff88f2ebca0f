"""Memory that CUDA kernels take inside one operation, by rule.

None of these figures was measured here: they follow from what the kernels store, and the plan's interval covers them.
Left out because it depends on algorithm choices made at run time: cuDNN's convolution workspaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpudoc.plan.scratch import Extra, Rules

# sorted and original positions and their double buffers while equal rows are summed (aten/native/cuda/Embedding.cu)
_SORT_COPIES = 4


def embedding_backward(args: Sequence[Any], _: object) -> Extra:
    """Equal rows are found by sorting the indices: copies of them as scratch."""
    return Extra(_SORT_COPIES * args[1].numel() * args[1].element_size())


def rnn_layer(args: Sequence[Any], _: object) -> Extra:
    """cuDNN keeps, per step and unit, four gates, the cell and its tanh for the backward pass."""
    steps, batch, _ = args[0].shape
    return Extra(0, {3: 6 * steps * batch * int(args[10]) * args[0].element_size()} if args[15] else {})


CUDA_RULES = Rules({"embedding_dense_backward": embedding_backward, "mkldnn_rnn_layer": rnn_layer})
