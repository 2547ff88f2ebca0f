"""What befalls a loader's workers."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, named

INTERRUPTED = """Training gets stuck in the middle of an epoch, after ctrl-c:
  File "/env/torch/utils/data/dataloader.py", line 761, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
  File "/usr/lib/python3.8/multiprocessing/connection.py", line 931, in wait
    ready = selector.select(timeout)
KeyboardInterrupt
"""


def test_a_program_that_was_ended_while_it_waited_for_workers_hung():
    assert first(INTERRUPTED) == "job_hung"


def test_a_program_that_was_ended_while_it_trained_did_not():
    text = INTERRUPTED.replace("Training gets stuck in the middle of an epoch", "Which batch size do you use")
    assert "job_hung" not in named(text)


@pytest.mark.parametrize(
    "text",
    [
        "cv2.resize in __getitem__ hangs as soon as the training uses num_workers=4",
        "Training with h5py files freezes when the data loader has workers",
    ],
)
def test_libraries_that_do_not_survive_a_fork(text):
    assert first(text) == "job_hung"


def test_a_decoder_that_is_slow_does_not_hang():
    assert "job_hung" not in named(
        "Workers stall on decoding with OpenCV, training is slow, the data loader is the bottleneck"
    )


DATASET = """
class Pictures(Dataset):
    def __init__(self):
        self.mean = torch.zeros(3).cuda()
    def __getitem__(self, i):
        return self.mean

loader = DataLoader(Pictures(), num_workers={n})
"""


def test_a_dataset_on_the_device_does_not_go_with_forked_workers():
    assert first(f"values become 0 in training\n{DATASET.format(n=2)}") == "cuda_in_forked_worker"
    assert "cuda_in_forked_worker" not in named(f"values become 0 in training\n{DATASET.format(n=0)}")


def test_a_model_on_the_device_is_as_it_should_be():
    text = DATASET.format(n=2).replace(".cuda()", "") + "\nmodel = Net().cuda()\n"
    assert "cuda_in_forked_worker" not in named(f"values become 0 in training\n{text}")


def test_tensors_of_the_device_cannot_be_pinned():
    text = "RuntimeError: cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
    assert first(text) == "cuda_in_forked_worker"


def test_memory_that_is_there_for_each_worker():
    text = "RAM goes up linearly with the number of workers of the data loader, each seems to have a copy of my dataset"
    assert first(text) == "worker_copy_on_write_growth"
    assert (
        "worker_copy_on_write_growth"
        not in named("I copy the dataset to the RAM disk before training with 4 workers")[:1]
    )


def test_a_bus_error_is_told_of_a_worker():
    assert first("ERROR: Unexpected bus error encountered in worker.") == "shm_too_small"


@pytest.mark.parametrize(
    "text",
    [
        "py-spy shows the main thread in poll, the training does nothing for an hour",
        "训练到第二轮卡死，GPU 利用率为 0，没有报错",
    ],
)
def test_a_run_that_stands_and_says_nothing(text):
    assert first(text) == "job_hung"


def test_a_stack_of_something_that_runs_is_a_profile():
    assert "job_hung" not in named("py-spy shows that most time of training is spent in the loss")


def test_memory_of_each_worker_in_chinese():
    assert first("训练时内存一直增长，每个worker都占用几十G") == "worker_copy_on_write_growth"


def test_a_run_that_stands_as_soon_as_there_are_workers():
    assert first("Training hangs after one epoch when num_workers>1, there is no error") == "job_hung"
    assert "job_hung" not in named("Training is slow when num_workers>1, there is no error")


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: DataLoader timed out after 120 seconds",
        "INFO: task python:812 blocked for more than 120 seconds.",
    ],
)
def test_time_that_ran_out_for_who_waited(text):
    assert first(text) == "job_hung"
