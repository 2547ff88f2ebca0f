from __future__ import annotations

import pytest

from gpudoc.doctor.causes import allocator
from gpudoc.facts.readers import read
from gpudoc.units import GIB, MIB

MESSAGES = {
    "torch 1.4": "CUDA out of memory. Tried to allocate 64.00 MiB (GPU 2; 11.00 GiB total capacity; 9.50 GiB already "
    "allocated; 32.00 MiB free; 512.00 MiB cached)",
    "torch 1.5": "CUDA out of memory. Tried to allocate 64.00 MiB (GPU 2; 11.00 GiB total capacity; 9.50 GiB already "
    "allocated; 32.00 MiB free; 10.00 GiB reserved in total by PyTorch)",
    "torch 2.1": "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 2 has a total capacty of 11.00 GiB of which 32.00 MiB "
    "is free. Process 91 has 9.90 GiB memory in use. Of the allocated memory 9.50 GiB is allocated by PyTorch, and 512.00 "
    "MiB is reserved by PyTorch but unallocated.",
    "async": "Allocation on device 2 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.50 GiB\n"
    "Requested               : 64.00 MiB\nDevice limit            : 11.00 GiB\nFree (according to CUDA): 32.00 MiB",
}


@pytest.mark.parametrize("form", list(MESSAGES))
def test_every_form_of_the_message_gives_the_same_numbers(form):
    (message,) = allocator.read(read(MESSAGES[form]).text)
    assert message.request == 64 * MIB
    assert message.total == 11 * GIB
    assert message.free == 32 * MIB
    assert message.allocated == int(9.5 * GIB)


def test_what_pytorch_holds_unused_and_what_others_hold():
    (message,) = allocator.read(read(MESSAGES["torch 2.1"]).text)
    assert message.unallocated == 512 * MIB
    assert message.others == ((91, int(9.9 * GIB)),)
    (old,) = allocator.read(read(MESSAGES["torch 1.5"]).text)
    assert old.unallocated == 512 * MIB
    assert old.outside == 11 * GIB - 32 * MIB - 10 * GIB


def test_a_message_without_numbers_has_none():
    (message,) = allocator.read(read("RuntimeError: CUDA out of memory.").text)
    assert message.total is None
    assert message.unallocated is None


def test_what_was_cached_before_torch_1_4_is_what_is_not_in_use():
    (message,) = allocator.read(read(MESSAGES["torch 1.4"]).text)
    assert message.unallocated == 512 * MIB
    assert message.reserved == 10 * GIB
