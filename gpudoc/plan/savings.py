"""The memory of a traced step if its state were narrower, spread over other ranks, or in the host's memory.

This is arithmetic on the blocks of a trace, because an 8-bit optimizer needs another package, and a trace shows neither
other numbers of ranks nor the device of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from gpudoc.plan.memory import Sizes
from gpudoc.plan.planning import Plan
from gpudoc.plan.roofline import ExchangedBytes
from gpudoc.plan.tape import GATHER, REDUCE, StepPhase, Storage, StorageKind
from gpudoc.train.start.levers import small_twin
from gpudoc.workload.build import Workload

# a step is traced once on one of this many ranks, a common number per machine, and then scaled to other numbers
TRACED_RANKS = 8
SMALL_STATE = "8-bit optimizer state"
SMALL_STATE_HOW = "--set optimizer_state=8bit (pip install torchao)"
# torchao.optim: a byte per element, a float32 scale for each 256, and the table of the bytes' values; smaller tensors,
# and those that 256 does not divide, do not change
_ELEMENTS_PER_SCALE, _LEAST_ELEMENTS, _TABLE_BYTES = 256, 4096, 1024


def can_shrink(workload: Workload) -> bool:
    """Whether torchao has the optimizer in 8 bits."""
    return small_twin(workload) is not None


def with_small_state(plan: Plan) -> Plan:
    """The plan with Adam's moments in 8 bits, as torchao keeps them."""

    def shrink(block: Storage, size: int) -> int:
        elements = size // 4
        is_small = elements < _LEAST_ELEMENTS or elements % _ELEMENTS_PER_SCALE
        if block.kind is not StorageKind.OPTIMIZER or is_small:
            return size
        return elements + 4 * (elements // _ELEMENTS_PER_SCALE) + _TABLE_BYTES

    return _changed(plan, shrink)


def over(plan: Plan, ranks: int) -> Plan:
    """The plan of one of `ranks`, for a step that was traced on one of TRACED_RANKS."""

    def divide(block: Storage, size: int) -> int:
        return -(-size * TRACED_RANKS // ranks) if _is_spread(block) else size

    return _changed(plan, divide)


def offloaded(plan: Plan, ranks: int) -> Plan:
    """The plan with all that is spread over `ranks` in the host's memory, from where each gather loads its block.

    A rank's part of a block is loaded in float32, as it is kept, and then gathered in the precision of the step.
    """
    found = _changed(plan, lambda block, size: 0 if _is_spread(block) else size)
    memory, sizes = found.memory, plan.memory.points[0]
    gathered = [index for index, block in enumerate(memory.blocks) if block.op == GATHER]
    if not gathered:
        return found
    largest = max(gathered, key=lambda index: int(sizes[index]))
    # float32 is at most twice as wide as the gathered block
    passing, index = 2 * -(-int(sizes[largest]) // ranks), len(memory.blocks)
    block = Storage(passing, "in transfer from the host", "", StepPhase.FORWARD)
    place = memory.events.tolist().index(largest) + 1
    grown = replace(
        memory,
        blocks=(*memory.blocks, block),
        points=tuple(np.append(point, passing) for point in memory.points),
        events=np.insert(memory.events, place, [index, ~index]),
        marks={name: at + 2 if at >= place else at for name, at in memory.marks.items()},
    )
    return replace(found, memory=grown)


def exchange_of(plan: Plan, ranks: int, *, is_offloaded: bool = False) -> ExchangedBytes:
    """The bytes that one of `ranks` sends and receives in a step of `over`; zero for a single rank."""
    gathered = in_float32 = reduced = 0
    for work in plan.work.works[0] if ranks > 1 else ():
        # an operation reads a rank's part and writes the whole, or the other way round
        whole = work.moved_bytes * TRACED_RANKS // (TRACED_RANKS + 1)
        if work.op.startswith("c10d::_allgather"):
            gathered += whole
            in_float32 += whole * 4 // getattr(torch, work.dtype).itemsize
        elif work.op == REDUCE:
            reduced += whole
    link = (gathered + reduced) * (ranks - 1) // ranks
    if not is_offloaded:
        return ExchangedBytes(link_bytes=link)
    spread = _changed(plan, lambda block, size: size if block.is_spread else 0)
    # scratch, whose size is computed for each batch, is not spread
    held = replace(spread.memory, formulas=()).peak_bytes(plan.memory.batches[0])
    return ExchangedBytes(link_bytes=link, up_bytes=in_float32 // ranks, down_bytes=reduced // ranks, host_bytes=held)


def _is_spread(block: Storage) -> bool:
    return block.is_spread or block.phase is StepPhase.OPTIMIZER


def _changed(plan: Plan, change: Callable[[Storage, int], int]) -> Plan:
    memory = plan.memory

    def all_of(sizes: Sizes) -> Sizes:
        pairs = zip(memory.blocks, sizes.tolist(), strict=True)
        return np.array([change(block, size) for block, size in pairs], dtype=np.int64)

    return replace(plan, memory=replace(memory, points=tuple(map(all_of, memory.points))))
