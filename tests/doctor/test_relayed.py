from __future__ import annotations

import pytest

from gpudoc.doctor.model import Finding, Observation
from gpudoc.doctor.remedies import advised_in, first_steps
from gpudoc.facts.readers import read as read_text
from tests.doctor.causes.judge import report_of

NVLS = (
    "node1:812:990 [3] transport/nvls.cc:244 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 "
    ": CUDA error 401 'the operation cannot be performed in the present state'.\n"
    "This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches.\n"
    "You can disable NVLS by setting NCCL_NVLS_ENABLE=0, but this will reduce the speed of collectives.\n"
)


def advised(text: str) -> list[str]:
    return [advice.setting for advice in advised_in(read_text(text).text)]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (NVLS, ["NCCL_NVLS_ENABLE=0"]),
        ('NotImplementedError: RTX 4000 has no P2P. Please set `NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1"` or use it.',
         ["NCCL_P2P_DISABLE=1", "NCCL_IB_DISABLE=1"]),
        ("RuntimeError: not deterministic; you must set an environment variable before: CUBLAS_WORKSPACE_CONFIG=:4096:8 or "
         "CUBLAS_WORKSPACE_CONFIG=:16:8.", ["CUBLAS_WORKSPACE_CONFIG=:4096:8"]),
        ("NotImplementedError: The operator is not implemented for MPS. As a temporary fix, you can set the environment "
         "variable `PYTORCH_ENABLE_MPS_FALLBACK=1`.", ["PYTORCH_ENABLE_MPS_FALLBACK=1"]),
        ("Error: peer access failed, try setting NCCL_P2P_LEVEL to 0", ["NCCL_P2P_LEVEL=0"]),
        # a condition that nobody decided
        ("torch.OutOfMemoryError: CUDA out of memory. If reserved but unallocated memory is large try setting "
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.", []),
        # what shows more and mends nothing
        ("RuntimeError: CUDA error: x. For debugging consider passing CUDA_LAUNCH_BLOCKING=1", []),
        ("Error executing job. Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", []),
        ("As an unsafe, unsupported, undocumented workaround you can set KMP_DUPLICATE_LIB_OK=TRUE. OMP: Error #15", []),
        # no program of the GPU's
        ("RuntimeError: cannot load the library, please set LD_PRELOAD=/tmp/lib.so", []),
        ("Error: not found, set PYTHON_STARTUP_FILE=/tmp/a.py", []),
        # what somebody did
        ("RuntimeError: NCCL error. I tried setting NCCL_P2P_DISABLE=1 without luck", []),
        ("export NCCL_P2P_DISABLE=1\npython train.py", []),
        ("To turn them off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`.", []),
    ],
)  # fmt: skip
def test_only_what_an_error_itself_advises_is_passed_on(text, settings):
    assert advised(text) == settings


def test_the_first_step_of_the_finding_that_the_line_supports():
    advices = advised_in(read_text(NVLS).text)
    quoted = Finding(id="x", confidence=0.9, evidence=(Observation("text", "NCCL WARN", "line 1"),))
    elsewhere = Finding(id="x", confidence=0.9, evidence=(Observation("text", "other", "line 90"),))
    (step,) = first_steps(quoted, advices)
    assert step.run == "export NCCL_NVLS_ENABLE=0"
    assert first_steps(elsewhere, advices) == ()


def test_it_stands_first_in_the_report():
    report = report_of(
        "NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB. Please set "
        '`NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1" or use `accelerate launch` which will do this automatically.'
    )
    assert report.findings[0].fix[0].run == "export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1"


def test_it_stands_before_the_steps_of_the_cause():
    report = report_of(
        "RuntimeError: CUDA error: an illegal memory access was encountered; please set NCCL_STRANGE_ENABLE=0 for now"
    )
    assert report.findings[0].id == "illegal_memory_access"
    assert report.findings[0].fix[0].run == "export NCCL_STRANGE_ENABLE=0"
    assert len(report.findings[0].fix) > 1


def test_nccl_s_own_guess_and_its_own_way_out_stand_together():
    report = report_of(
        f"{NVLS}torch.distributed.DistBackendError: NCCL error, unhandled cuda error, NCCL version 2.19.3"
    )
    assert report.findings[0].id == "fabric_manager_not_running"
    assert report.findings[0].fix[0].run == "export NCCL_NVLS_ENABLE=0"


def test_an_error_that_nothing_explains_is_answered_with_its_own_way_out():
    report = report_of(
        "node1:812:990 [3] NCCL WARN strange state of the fabric\n"
        "RuntimeError: NCCL error: odd failure; please set NCCL_STRANGE_ENABLE=0\n"
    )
    said = [*report.deciding_facts, *(step.run for finding in report.findings for step in finding.fix)]
    assert any("NCCL_STRANGE_ENABLE=0" in one for one in said)
