import signal

import pytest

from gpudoc.tune.trial.messages import End
from gpudoc.tune.trial.outcome import classify_exception, classify_status, classify_text

TEXTS = {
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried": End.OOM_HOST,
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB": End.OOM_DEVICE,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": End.OOM_WORKSPACE,
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED": End.OOM_WORKSPACE,
    "could not create a primitive": End.OOM_WORKSPACE,
    "DataLoader worker (pid 31) is killed by signal: Killed.": End.WORKER_DIED,
    "unable to write to file </torch_1_2_3>: No space left; shared memory (shm)": End.OOM_SHM,
    "CUDA error: invalid configuration argument": End.GRID_LIMIT,
    "Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true": End.INDEX_LIMIT,
    "libgomp: Thread creation failed: Resource temporarily unavailable": End.OOM_HOST,
    "mat1 and mat2 shapes cannot be multiplied (8x3 and 4x2)": None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_messages(text):
    assert classify_text(text) is TEXTS[text]
    assert classify_exception(RuntimeError(text)) is (TEXTS[text] or End.USER_ERROR)


def test_a_users_own_check_that_mentions_limits_stays_the_users_error():
    assert classify_exception(ValueError("batch 9 is out of memory range of int32")) is End.USER_ERROR
    assert classify_exception(KeyError("x")) is End.USER_ERROR


def test_memory_errors_of_python_and_the_system():
    assert classify_exception(MemoryError()) is End.OOM_HOST
    assert classify_exception(OSError(12, "Cannot allocate memory")) is End.OOM_HOST
    wrapped = RuntimeError("the step failed")
    wrapped.__context__ = MemoryError()
    assert classify_exception(wrapped) is End.OOM_HOST


@pytest.mark.parametrize(
    ("status", "stderr", "killed", "end"),
    [
        (-signal.SIGKILL, "", True, End.OOM_CGROUP),
        (-signal.SIGKILL, "", False, End.SIGNAL),
        (-signal.SIGBUS, "", False, End.OOM_SHM),
        (-signal.SIGSEGV, "Fatal Python error: Segmentation fault", False, End.SIGNAL),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'", False, End.OOM_HOST),
        (1, "libgomp: Thread creation failed: Resource temporarily unavailable", False, End.OOM_HOST),
        (3, "bye", False, End.USER_ERROR),
    ],
)
def test_processes_that_ended_without_a_word(status, stderr, killed, end):
    found, detail = classify_status(status, stderr, lambda: killed)
    assert found is end
    assert detail


def test_memory_that_ran_out_in_the_checkpoints_thread_is_memory():
    """The thread hands over what it caught as an OSError, with the kind in its text."""
    assert classify_exception(OSError("MemoryError: ")) is End.OOM_HOST
    assert classify_exception(OSError("No space left on device")) is End.USER_ERROR
