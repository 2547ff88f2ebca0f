from __future__ import annotations

from gpudoc.doctor.model import Crashed, Evidence, Finding, Observation
from gpudoc.doctor.unexplained import look
from gpudoc.facts.model import Gpu, Machine, TorchBuild
from gpudoc.facts.readers import read
from tests.doctor.causes.judge import report_of


def at(text):
    reading = read(text)
    return Evidence(source="file", machine=reading.machine, reading=reading)


def test_a_gpu_error_that_nothing_explains_is_unknown_with_two_deciding_facts():
    report = report_of(
        "Traceback (most recent call last):\nRuntimeError: CUDA error: operation not permitted when stream is capturing"
    )
    assert report.verdict == "unknown"
    assert "capturing" in report.unexplained[0].value
    assert len(report.deciding_facts) == 2


def test_readable_text_in_which_nothing_is_recognised_is_unknown_not_healthy():
    report = report_of("Take two eggs and a pound of flour.\nBake for an hour.")
    assert report.verdict == "unknown"
    assert any("collect_env" in fact for fact in report.deciding_facts)


def test_what_would_decide_depends_on_the_error():
    hint = look(at("RuntimeError: NCCL communicator was aborted on rank 3"), (), ()).deciding_facts
    assert any("NCCL_DEBUG" in fact for fact in hint)


def test_a_broken_finding_leaves_nothing_unexplained_and_a_crash_does():
    evidence = at("RuntimeError: CUDA error: strange")
    broken = Finding(id="x", confidence=0.9, evidence=(Observation("a", "b", "c"),))
    assert not look(evidence, (broken,), ()).wrong
    assert look(evidence, (), (Crashed("x", "KeyError: 1"),)).wrong


def test_a_machine_whose_torch_sees_no_gpu_for_no_reason_is_unknown():
    machine = Machine(gpus=(Gpu(index=0),), torch=TorchBuild(is_available=False))
    assert look(Evidence(source="machine", machine=machine), (), ()).wrong
    assert not look(Evidence(source="machine", machine=Machine(torch=TorchBuild(is_available=False))), (), ()).wrong
