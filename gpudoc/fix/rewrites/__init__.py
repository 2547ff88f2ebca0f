"""Every rewrite there is: one module per family, in the order in which they should be tried."""

from __future__ import annotations

from gpudoc.fix.rewrites.activations import ACTIVATION_CHECKPOINTING
from gpudoc.fix.rewrites.anomaly import ANOMALY_OFF
from gpudoc.fix.rewrites.base import Rewrite
from gpudoc.fix.rewrites.checkpoints import CHECKPOINT_EACH_STEP
from gpudoc.fix.rewrites.constants import CONSTANT_PER_STEP
from gpudoc.fix.rewrites.copies import COPY_EACH_STEP
from gpudoc.fix.rewrites.counts import COUNTS_IN_LOOP
from gpudoc.fix.rewrites.evaluation import EVALUATION_NO_GRAD
from gpudoc.fix.rewrites.graph import DETACH_SUM, RETAIN_GRAPH
from gpudoc.fix.rewrites.growth import GROWTH_BY_COPY
from gpudoc.fix.rewrites.loader import (
    ITERABLE_WORKER,
    LOADER_WORKERS,
    PERSISTENT_WORKERS,
    PIN_MEMORY,
    WITHOUT_WORKERS,
)
from gpudoc.fix.rewrites.memory import BATCH_IN_CHUNKS
from gpudoc.fix.rewrites.outputs import KEPT_OUTPUTS
from gpudoc.fix.rewrites.padding import PAD_TO_LONGEST
from gpudoc.fix.rewrites.precision import FLOAT64_BY_ACCIDENT
from gpudoc.fix.rewrites.sample_cache import SAMPLE_EACH_EPOCH
from gpudoc.fix.rewrites.samples import FILE_PER_SAMPLE, OBJECT_PER_SAMPLE
from gpudoc.fix.rewrites.second_pass import DOUBLE_FORWARD
from gpudoc.fix.rewrites.seldom import ITEM_EACH_STEP, LOGGING_EACH_STEP
from gpudoc.fix.rewrites.settings import EXPANDABLE_SEGMENTS, FEW_THREADS, FUSED_OPTIMIZER
from gpudoc.fix.rewrites.similarity import PAIRS_BY_PRODUCT
from gpudoc.fix.rewrites.sparse import SPARSE_GRADIENT
from gpudoc.fix.rewrites.tensors import COLLATE_LISTS, TENSOR_ON_CPU
from gpudoc.fix.rewrites.untrained_network import UNTRAINED_NETWORK
from gpudoc.fix.rewrites.untrained_weights import UNTRAINED_PART
from gpudoc.fix.rewrites.used_seldom import USED_SELDOM
from gpudoc.fix.rewrites.used_step import ONE_STEP_USED
from gpudoc.fix.rewrites.zero_fill import ZERO_FILL

# wrong by accident, then work that is done again and again, then the loader, the loop and precision
REWRITES: tuple[Rewrite, ...] = (
    ANOMALY_OFF,
    EVALUATION_NO_GRAD,
    DETACH_SUM,
    RETAIN_GRAPH,
    KEPT_OUTPUTS,
    UNTRAINED_PART,
    UNTRAINED_NETWORK,
    ZERO_FILL,
    FILE_PER_SAMPLE,
    OBJECT_PER_SAMPLE,
    SAMPLE_EACH_EPOCH,
    CONSTANT_PER_STEP,
    DOUBLE_FORWARD,
    COPY_EACH_STEP,
    USED_SELDOM,
    COLLATE_LISTS,
    COUNTS_IN_LOOP,
    GROWTH_BY_COPY,
    LOADER_WORKERS,
    ITERABLE_WORKER,
    PERSISTENT_WORKERS,
    WITHOUT_WORKERS,
    PIN_MEMORY,
    TENSOR_ON_CPU,
    ITEM_EACH_STEP,
    CHECKPOINT_EACH_STEP,
    LOGGING_EACH_STEP,
    ONE_STEP_USED,
    PAIRS_BY_PRODUCT,
    PAD_TO_LONGEST,
    SPARSE_GRADIENT,
    FUSED_OPTIMIZER,
    FEW_THREADS,
    FLOAT64_BY_ACCIDENT,
    ACTIVATION_CHECKPOINTING,
    BATCH_IN_CHUNKS,
    EXPANDABLE_SEGMENTS,
)

# rewrites that may save a script which runs out of memory
OF_MEMORY = frozenset(
    one.id
    for one in (
        EVALUATION_NO_GRAD, DETACH_SUM, RETAIN_GRAPH, KEPT_OUTPUTS, UNTRAINED_PART, UNTRAINED_NETWORK,
        ACTIVATION_CHECKPOINTING, BATCH_IN_CHUNKS, EXPANDABLE_SEGMENTS,
    )
)  # fmt: skip

__all__ = ["OF_MEMORY", "REWRITES", "Rewrite"]
