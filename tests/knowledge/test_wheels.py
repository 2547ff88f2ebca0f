from __future__ import annotations

import pytest

from gpudoc.knowledge.wheels import fit, index_url, runs_on, suggest

CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CU118 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_37", "sm_90")


@pytest.mark.parametrize(
    ("capability", "archs", "expected"),
    [
        ((8, 9), CU126, "runs"),
        ((6, 1), CU126, "runs"),
        ((12, 0), CU126, "too_new"),
        ((3, 5), CU126, "too_old"),
        ((7, 0), ("sm_75", "sm_80", "sm_90"), "too_old"),
        ((12, 0), (*CU126, "compute_90"), "runs"),
        ((8, 7), CU126, "too_old"),
        ((9, 0), ("sm_90a",), "runs"),
    ],
)
def test_code_runs_within_its_major_version(capability, archs, expected):
    assert fit(capability, archs) == expected


def test_the_same_judgement_as_torchs_own_table():
    torch_cuda = pytest.importorskip("torch.cuda")
    judge = getattr(torch_cuda, "_code_compatible_with_device", None)
    table = getattr(torch_cuda, "DEVICE_REQUIREMENT", None)
    if judge is None or table is None:
        pytest.skip("this torch has no such table")
    devices = [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121]
    assert {(c, d): runs_on(c, d) for c in table for d in devices} == {
        (c, d): judge(d, c) for c in table for d in devices
    }


def test_the_wheel_must_fit_gpu_and_driver():
    assert suggest((12, 0), (13, 0)) == (13, 2)
    assert suggest((12, 0), (12, 8)) == (12, 9)
    assert suggest((7, 0), (13, 0)) == (12, 6)
    # the most drivers run the oldest
    assert suggest((9, 0), None) == (12, 6)
    assert suggest((12, 0), None) == (12, 9)
    assert suggest((9, 0), (11, 8)) is None
    assert suggest((7, 0), (12, 4), "aarch64") is None


def test_the_index_is_named_after_the_build():
    assert index_url((12, 6)).endswith("/cu126")
