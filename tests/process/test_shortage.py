"""One definition says what running out of memory is, for the trainer, the tuner and whoever builds a workload."""

from __future__ import annotations

import errno

import pytest
import torch

from gpudoc.process.shortage import Shortage, is_out_of_memory, links, shortage, shortage_in
from gpudoc.tune.trial.outcome import classify_exception

TEXTS = {
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB": Shortage.DEVICE,
    "CUDA error: out of memory": Shortage.DEVICE,
    "Allocation on device 0 would exceed allowed memory. (out of memory)": Shortage.DEVICE,
    "Allocation on device ": Shortage.DEVICE,
    "torch.OutOfMemoryError: Allocation on device ": Shortage.DEVICE,
    "Allocation on device memory pools is not supported": None,
    "NCCL error: unhandled cuda error; last error: Cuda failure 2 'out of memory'": Shortage.DEVICE,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": Shortage.WORKSPACE,
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": Shortage.WORKSPACE,
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR": Shortage.WORKSPACE,
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if": Shortage.WORKSPACE,
    "Unable to find a valid cuDNN algorithm to run convolution": Shortage.WORKSPACE,
    "GET was unable to find an engine to execute this computation": Shortage.WORKSPACE,
    "could not create a primitive": Shortage.WORKSPACE,
    "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried": Shortage.HOST,
    "[enforce fail at alloc_cpu.cpp:98] . DefaultCPUAllocator: not enough memory: you tried": Shortage.HOST,
    "std::bad_alloc": Shortage.HOST,
    "can't start new thread": Shortage.HOST,
    "libx.so: failed to map segment from shared object: Cannot allocate memory": Shortage.HOST,
    "/tmp/torchinductor_ann/c.so: failed to map segment from shared object: Operation not permitted": None,
    "/tmp/.triton/cache/launcher.so: failed to map segment from shared object": None,
    "unable to write to file </torch_31_2_3>: No space left on device (28)": Shortage.SHM,
    "unable to open shared memory object </torch_31_2> in read-write mode: Too many open files (24)": None,
    "CUDA error: device-side assert triggered": None,
    "CUDA error: an illegal memory access was encountered": None,
    "mat1 and mat2 shapes cannot be multiplied (8x3 and 4x2)": None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_message_says_which_memory_ran_out(text):
    assert shortage_in(text) is TEXTS[text]
    assert is_out_of_memory(RuntimeError(text)) is (TEXTS[text] is not None)


@pytest.mark.parametrize(
    "problem",
    [
        *(RuntimeError(text) for text in TEXTS),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("MemoryError: "),
        torch.OutOfMemoryError("in whatever words"),
        ValueError("batch 9 is out of memory range"),
    ],
    ids=repr,
)
def test_what_the_tuner_takes_for_memory_is_what_the_trainer_rescues(problem):
    assert classify_exception(problem).is_memory is is_out_of_memory(problem)


def test_errors_of_python_the_system_and_the_device_need_no_words():
    assert shortage(MemoryError()) is Shortage.HOST
    assert shortage(OSError(errno.ENOMEM, "in another language")) is Shortage.HOST
    assert shortage(torch.OutOfMemoryError("")) is Shortage.DEVICE


def test_a_users_own_check_is_no_lack_of_memory():
    assert shortage(ValueError("batch 9 is out of memory range of int32")) is None
    assert shortage(KeyError("out of memory")) is None


def test_an_error_that_was_raised_for_a_lack_of_memory_is_one_unless_it_hides_it():
    def wrap(hidden):
        try:
            try:
                raise MemoryError
            except MemoryError:
                if hidden:
                    raise RuntimeError("the layer has failed") from None
                raise RuntimeError("the layer has failed")  # noqa: B904
        except RuntimeError as problem:
            return problem

    assert shortage(wrap(hidden=False)) is Shortage.HOST
    assert shortage(wrap(hidden=True)) is None
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__context__, second.__context__ = second, first
    assert list(links(first)) == [first, second]
