from __future__ import annotations

import pytest

from gpudoc.doctor.catalogue import reported
from gpudoc.doctor.model import Setting
from tests.doctor.catalogue.rows import check_row


@pytest.mark.parametrize("cause", reported.CAUSES, ids=lambda c: c.id)
def test_a_row_tells_meaning_reason_remedy_and_source_in_every_place(cause):
    check_row(cause)


@pytest.mark.parametrize(
    ("capability", "named", "left_out"),
    [
        ((12, 0), "nvidia-open", "cuda-drivers"),
        ((8, 0), "nvidia-open", "cuda-drivers"),
        ((6, 1), "cuda-drivers", "nvidia-open"),
    ],
)
def test_the_kind_of_module_is_the_one_that_the_gpu_needs(capability, named, left_out):
    (cause,) = [cause for cause in reported.CAUSES if cause.id == "kernel_module_kind_wrong"]
    runs = " ".join(step.run for step in cause.fix(Setting(capability=capability)))
    assert named in runs
    assert left_out not in runs
    both = " ".join(step.run for step in cause.fix(Setting()))
    assert "nvidia-open" in both
    assert "cuda-drivers" in both
