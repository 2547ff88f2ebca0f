"""Memory that somebody else holds, or that was used up, by tables and half sentences."""

import pytest

from gpudoc.doctor.causes import held_memory
from tests.doctor.causes.judge import first_is, foremost, never, told

TABLE = """| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2 |
|   0  Tesla V100-SXM2...  Off  | 00000000:05:00.0 Off |                    0 |
| N/A   36C    P0    41W / 300W |  {used}MiB / 16280MiB |      0%      Default |
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
{rows}+-----------------------------------------------------------------------------+
"""
ROW = "|    0      4711      C   python                                     11800MiB |\n"


test_who_holds_the_memory_is_told_from_tables_and_half_sentences = first_is([
    ("oom_other_process", "I get OOM at once\n" + TABLE.format(used=11900, rows="")),  # memory without a process belongs to somebody who is not listed
])  # fmt: skip
test_what_only_looks_like_it_names_nothing = never([
    ("oom_fragmentation", "CUDA out of memory. If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."),  # the allocators own hint tells nothing
    ("oom_after_batch_size_finder", "auto_find_batch_size=False\nCUDA out of memory with batch size 8"),  # a finder that is switched off chose nothing
])  # fmt: skip
LOADED = "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize\nLoaded runtime CuDNN library: 7.1 but source was compiled with: 7.4"

test_a_library_that_could_not_be_loaded_is_another_matter = never(
    [("oom_masked_as_library_error", LOADED)], seen=foremost
)


@pytest.mark.parametrize(("used", "rows"), [(11900, ROW), (300, "")])
def test_memory_with_an_owner_or_hardly_any_belongs_to_nobody_else(used, rows):
    text = "I get OOM at once\n" + TABLE.format(used=used, rows=rows)
    assert "oom_other_process" not in [finding.id for finding in told(held_memory.FINDERS, text)]
