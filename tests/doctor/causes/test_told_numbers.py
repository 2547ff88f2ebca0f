"""Numbers that stand for a fault, and the same numbers where they count something else."""

from __future__ import annotations

import pytest

from gpudoc.doctor.causes import told_numbers
from gpudoc.doctor.model import Evidence
from gpudoc.facts.readers import read


def found(text: str) -> list[str]:
    reading = read(text)
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    return [one.id for finder in told_numbers.FINDERS for one in finder.find(evidence)]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("fabric_manager_not_running", "cupy: cuInit(0) failed, returned 802 on a DGX with A100-SXM4"),
        ("fabric_manager_not_running", "Check failed: status == CUDA_SUCCESS (802 vs. 0) on our HGX box"),
        ("fabric_manager_not_running", "[802] Call to cuDeviceGetCount results in an error, eight H100 SXM"),
        ("mps_daemon_unreachable", "cuInit failed with error code 806 when the second worker starts"),
        ("forward_compat_on_consumer_gpu", "ffmpeg: cuInit(0) failed -> error 804"),
        ("gpu_ecc_error", "cudaGetDeviceProperties returned error 214 this morning, the V100 worked yesterday"),
        ("driver_too_old", "cudaGetDeviceCount() failed. Status: 35"),
        ("gpu_fallen_off_bus", "Our jobs die about once a day. The admin sees Xids 79 in the log of that node."),
        ("gpu_ecc_error", "training stops, and there are Xid events 48 on gpu 3"),
    ],
)
def test_a_number_is_looked_up(cause, text):
    assert found(text) == [cause]


@pytest.mark.parametrize(
    "text",
    [
        "step 802 loss 0.35 | step 803 loss 0.34 | cuda memory 999 MiB",
        "GPU training: 802 images per second, 3 errors in the labels",
        "cuInit(0) failed, returned 1",
    ],
)
def test_a_number_of_something_else_is_left_alone(text):
    assert found(text) == []
