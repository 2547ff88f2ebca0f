"""Numbers that stand for a fault, and the same numbers where they count something else."""

import pytest

from gpudoc.doctor.causes import told_numbers
from tests.doctor.causes.judge import told

CASES = [
    ("fabric_manager_not_running", "cupy: cuInit(0) failed, returned 802 on a DGX with A100-SXM4"),
    ("fabric_manager_not_running", "Check failed: status == CUDA_SUCCESS (802 vs. 0) on our HGX box"),
    ("fabric_manager_not_running", "[802] Call to cuDeviceGetCount results in an error, eight H100 SXM"),
    ("mps_daemon_unreachable", "cuInit failed with error code 806 when the second worker starts"),
    ("gpu_ecc_error", "cudaGetDeviceProperties returned error 214 this morning, the V100 worked yesterday"),
    ("driver_too_old", "cudaGetDeviceCount() failed. Status: 35"),
    ("gpu_fallen_off_bus", "Our jobs die about once a day. The admin sees Xids 79 in the log of that node."),
    ("gpu_ecc_error", "training stops, and there are Xid events 48 on gpu 3"),
    (None, "step 802 loss 0.35 | step 803 loss 0.34 | cuda memory 999 MiB"),
    (None, "GPU training: 802 images per second, 3 errors in the labels"),
    (None, "cuInit(0) failed, returned 1"),
]


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_a_number_is_looked_up_and_one_of_something_else_is_left_alone(cause, text):
    assert [one.id for one in told(told_numbers.FINDERS, text)] == ([cause] if cause else [])
