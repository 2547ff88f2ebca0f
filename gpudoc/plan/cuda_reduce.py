"""The scratch of CUDA's general reduction kernel: partial results of the thread blocks that share one output.

The launch is chosen as in setReduceConfig of ATen/native/cuda/Reduce.cuh (torch 2.9). It requests far more memory than
it uses if the outputs are adjacent, for example in the sum of a bias' gradient over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

_MAX_THREADS = 512
_WARP = 32
_MIN_VALUES, _MAX_VALUES = 16, 256
_MOST_BYTES = (1 << 31) - 1
# the most threads on a card: those of an H100, where scratch is largest; smaller cards take fewer thread blocks
_MULTIPROCESSORS, _THREADS_PER_MULTIPROCESSOR = 132, 2048


@dataclass(frozen=True, slots=True)
class _Launch:
    width: int
    height: int
    vector: int
    blocks_per_output: int
    grid: int


def buffer_bytes(outputs: int, inputs: int, item_bytes: int, along_rows: int) -> int:
    """Bytes of partial results of a sum of `inputs` numbers per output; 0 if one thread block does an output.

    `along_rows` is 1 if the numbers of one sum are adjacent, 0 if the outputs are.
    """
    outputs, inputs = _indexable(outputs, inputs, item_bytes)
    launch = _launch(outputs, inputs, along_rows)
    if launch.blocks_per_output <= 1:
        return 0
    # sums are kept in float32, or in float64
    size = max(4, item_bytes) * outputs * launch.blocks_per_output
    return size if along_rows else size * launch.width * launch.vector


def semaphore_bytes(outputs: int, inputs: int, item_bytes: int, along_rows: int) -> int:
    """Bytes of one counter for each column of thread blocks; 0 if one thread block does an output."""
    outputs, inputs = _indexable(outputs, inputs, item_bytes)
    launch = _launch(outputs, inputs, along_rows)
    return 4 * launch.grid if launch.blocks_per_output > 1 else 0


def _indexable(outputs: int, inputs: int, item_bytes: int) -> tuple[int, int]:
    # a sum that 32 bits cannot index is halved until they can, and done piece by piece
    while outputs * inputs * item_bytes > _MOST_BYTES and inputs > 1:
        inputs = -(-inputs // 2)
    return max(1, outputs), max(1, inputs)


def _launch(outputs: int, inputs: int, along_rows: int) -> _Launch:
    vector = 1
    if along_rows:
        first, second = (inputs // 4 if inputs > 128 else inputs), outputs
    else:
        vector = next(size for size in (4, 2, 1) if outputs % size == 0)
        first, second = outputs // vector, inputs
    most = _MAX_THREADS // vector
    narrow, tall = _power_below(first, most), _power_below(second, most)
    height = min(tall, most // min(narrow, _WARP))
    width = min(narrow, most // height)
    step_input, step_output = (width, 1) if along_rows else (1, width)
    splits = -(-inputs // step_input) >= min(height * 16, _MAX_VALUES)
    step_input, step_output = (step_input * height, step_output) if splits else (step_input, step_output * height)
    grid = -(-(outputs // vector) // step_output)
    values = -(-inputs // step_input)
    most_blocks = _MULTIPROCESSORS * (_THREADS_PER_MULTIPROCESSOR // (width * height))
    blocks = 1
    if splits and values >= _MAX_VALUES and grid <= most_blocks:
        blocks = max(min(-(-most_blocks // grid), -(-values // _MIN_VALUES)), -(-values // _MAX_VALUES))
    return _Launch(width, height, vector, blocks, grid)


def _power_below(number: int, most: int) -> int:
    return most if number >= most else 1 << (max(1, number).bit_length() - 1)
