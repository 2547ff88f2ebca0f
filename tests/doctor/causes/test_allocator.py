import pytest

from gpudoc.doctor.causes import allocator
from gpudoc.facts.readers import read
from gpudoc.units import GIB, MIB

HEAD = "CUDA out of memory. Tried to allocate 64.00 MiB"
OLD = HEAD + " (GPU 2; 11.00 GiB total capacity; 9.50 GiB already allocated; 32.00 MiB free; "
MESSAGES = {
    "torch 1.4": OLD + "512.00 MiB cached)",
    "torch 1.5": OLD + "10.00 GiB reserved in total by PyTorch)",
    "torch 2.1": HEAD
    + ". GPU 2 has a total capacty of 11.00 GiB of which 32.00 MiB is free. Process 91 has 9.90 GiB memory in use. Of the allocated memory 9.50 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.",
    "async": "Allocation on device 2 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.50 GiB\nRequested               : 64.00 MiB\nDevice limit            : 11.00 GiB\nFree (according to CUDA): 32.00 MiB",
}


def message(form):
    (one,) = allocator.read(read(MESSAGES.get(form, form)).text)
    return one


@pytest.mark.parametrize("form", list(MESSAGES))
def test_every_form_of_the_message_gives_the_same_numbers(form):
    one = message(form)
    assert (one.request, one.total, one.free, one.allocated) == (64 * MIB, 11 * GIB, 32 * MIB, int(9.5 * GIB))


def test_a_limit_that_a_program_set_for_itself_is_read_and_none_is_none():
    last = "\nPyTorch limit (set by user-supplied memory fraction)\n                        : "
    assert message(MESSAGES["async"] + last + "17179869184.00 GiB").limit is None
    limited = message(MESSAGES["async"] + last + "10.00 GiB")
    assert (limited.gpu, limited.limit) == (2, 10 * GIB)


def test_of_the_asynchronous_allocator_what_is_neither_free_nor_pytorchs_is_others():
    used = MESSAGES["async"].replace("9.50 GiB", "1.50 GiB")
    assert message(used).outside == 11 * GIB - 32 * MIB - int(1.5 * GIB)
    bare = message("torch.OutOfMemoryError: Allocation on device ")
    assert (bare.is_asynchronous, bare.outside, message("torch 2.1").is_asynchronous) == (True, None, False)


def test_what_pytorch_holds_unused_and_what_others_hold():
    assert {message(form).unallocated for form in ("torch 1.4", "torch 1.5", "torch 2.1")} == {512 * MIB}
    assert message("torch 2.1").others == ((91, int(9.9 * GIB)),)
    assert message("torch 1.5").outside == 11 * GIB - 32 * MIB - 10 * GIB
    # what was cached before torch 1.4 is what is not in use
    assert message("torch 1.4").reserved == 10 * GIB


def test_a_message_without_numbers_has_none():
    bare = message("RuntimeError: CUDA out of memory.")
    assert (bare.total, bare.unallocated) == (None, None)
