import pytest

from gpudoc.doctor.causes.sign import built_for, origin_of, other_source, reported
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.readers import read


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("PyTorch version: 2.3.0+cu118", (11, 8)),
        ("cudatoolkit  11.3.1  h2bc3f7f_2  conda-forge", (11, 3)),
        ("OS: Ubuntu 22.04\nPyTorch version: 2.3.0", (12, 1)),
        ("OS: Microsoft Windows 11\nPyTorch version: 2.3.0", None),
        ("PyTorch version: 2.3.0+cpu", None),
        ("nothing", None),
    ],
)
def test_what_torch_is_built_for_is_stated_or_follows_from_where_it_came(text, cuda):
    assert built_for(read(text).machine) == cuda


@pytest.mark.parametrize(
    ("source", "text", "asked"),
    [
        ("file", "PyTorch version: 2.3.0", [True, True]),
        ("file", "Is CUDA available: True", [False, True]),
        ("machine", "PyTorch version: 2.3.0", [False, False]),
    ],
)
def test_what_a_text_reports_is_asked_of_a_text_and_mostly_where_torch_does_not_work(source, text, asked):
    reading = read(text)
    evidence = Evidence(source=source, machine=reading.machine, reading=reading)
    finders = [
        reported("x", lambda text, evidence: iter([Skip("asked")]), though_it_works=way) for way in (False, True)
    ]
    assert [bool(list(finder.find(evidence))) for finder in finders] == asked
    assert origin_of(evidence, "no.such") == "the text"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("no kernel image is available for execution on the device at /src/ops/csrc/ball.cu:40", "/src/ops/csrc/ball.cu"),
        ("CUDA error (flash/csrc/fwd_template.h:125): no kernel image is available", "flash/csrc/fwd_template.h"),
        ("no kernel image is available (launch at /opt/conda/conda-bld/pytorch_1/work/aten/src/Loops.cuh:102)", None),
        ("no kernel image is available for execution on the device", None),
        ("error in roi_align_forward: invalid device function", "error in roi_align_forward"),
        ("FAIL file=/src/cuda/psroi_cuda.cu line=90 error=209 : no kernel image is available", "/src/cuda/psroi_cuda.cu"),
        ("FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=90 error=8 : invalid device function", None),
    ],
)  # fmt: skip
def test_a_source_file_that_is_not_torchs_own(text, file):
    named = other_source(read(text).text)
    assert (named is not None) == (file is not None)
    assert named is None or file in named.match[0]
