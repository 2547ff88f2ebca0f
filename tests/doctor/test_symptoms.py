from __future__ import annotations

import pytest

from gpudoc.doctor import likelihood
from gpudoc.doctor.model import Crashed, Evidence, Finding, Observation
from gpudoc.doctor.symptoms import look
from gpudoc.facts.model import Gpu, Machine, TorchBuild
from gpudoc.facts.readers import read
from gpudoc.knowledge.wording import Likelihood
from tests.doctor.causes.judge import report_of


def at(text):
    reading = read(text)
    return Evidence(source="file", machine=reading.machine, reading=reading)


def test_a_gpu_error_that_nothing_explains_is_unknown_with_two_deciding_facts():
    report = report_of("Traceback (most recent call last):\nRuntimeError: CUDA error: resource already mapped")
    assert report.verdict == "unknown"
    assert "mapped" in report.unexplained[0].value
    assert len(report.deciding_facts) == 2


def rates(*values, unit="it/s"):
    return "".join(f"step {100 * n} loss {2 - n / 10} {value} {unit}\n" for n, value in enumerate(values, start=1))


def test_a_log_whose_steps_take_longer_and_longer_is_not_healthy():
    report = report_of(rates(12.1, 11.9, 5.2, 4.8, 4.9) + "what happened after step 200?")
    assert report.verdict == "unknown"
    assert report.unexplained[0].value.startswith("2.5 times as slow at the end as at first: step 500 ")
    assert any("--pid" in fact for fact in report.deciding_facts)


@pytest.mark.parametrize(
    "text",
    [
        rates(12.1, 11.9, 12.2, 10.8, 11.9),
        rates(4.1, 5.9, 12.2, 12.8, 11.9),
        rates(12.1, 5.0, 4.9),
        rates(310, 305, 300, 290, 311, unit="img/s"),
    ],
    ids=["steady", "faster", "few", "images"],
)
def test_a_log_whose_steps_do_not_is_healthy(text):
    assert report_of(text).verdict == "healthy"


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


GUIDE = """# A guide

[a](b.md) [c](d.md)

## Drivers

```text
RuntimeError: The NVIDIA driver on your system is too old (found version 11040)
```

## Memory

```text
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
```

## Workers

Use more of them.
"""


def test_documentation_is_unknown_and_none_of_its_faults_is_a_finding():
    report = report_of(GUIDE)
    assert (report.verdict, report.findings, report.passed) == ("unknown", (), ())
    assert report.unexplained[0].fact == "documentation"
    assert len(report.deciding_facts) == 2


def test_chapters_that_name_faults_of_several_areas_are_documentation():
    chapters = (
        "## One\nThe NVIDIA driver on your system is too old (found version 11040)\n\n"
        "## Two\nuncorrectable ECC error encountered\nGPU has fallen off the bus\n"
    )
    assert report_of(chapters).unexplained[0].fact == "documentation"
    assert report_of(chapters.split("## Two")[0] + "## Two\nit fails").verdict == "broken"


def test_a_program_is_no_patient():
    report = report_of(
        "import torch\n\n\ndef train():\n    raise RuntimeError('CUDA out of memory')\n" + "x = 1\n" * 20
    )
    assert report.verdict == "unknown"
    assert report.unexplained[0].fact == "source code"


def test_a_complaint_is_unknown_with_guesses_and_what_to_collect_next(monkeypatch):
    words = [Likelihood("slow_storage", 0.4, 0.4, ("dict", "until"))]
    monkeypatch.setattr(likelihood, "weigh", lambda text, facts: words)
    report = report_of("My epochs take so long, it keeps them in a dict until the end")
    assert report.verdict == "unknown"
    assert [(f.id, f.severity) for f in report.findings] == [("slow_storage", "info")]
    assert "--pid" in report.deciding_facts[0]


def test_an_exception_of_one_line_is_a_failure_unless_the_program_went_on():
    error = "RuntimeError: strange things happened on this day"
    assert report_of(f"training on the GPU\n{error}").verdict == "broken"
    assert report_of(f"{error}, retrying\nepoch 1 step 5 loss 2.3").verdict == "healthy"


def test_words_about_gpus_without_a_fact_are_no_health():
    assert report_of("I like my GPU and CUDA").verdict == "unknown"
    assert report_of("I like my RTX 3090 with torch 2.6.0 and CUDA").verdict == "healthy"


def test_a_programs_log_may_hold_such_words_and_complain_of_nothing():
    steps = "".join(f"epoch 1 step {n} loss 2.{n}\n" for n in range(60))
    assert report_of(f"Using a slow image processor for the dataset\n{steps}").verdict == "healthy"


def test_words_of_a_fault_without_a_complaint_are_no_reason_to_doubt():
    report = report_of(
        "[W socket.cpp:697] [c10d] The client socket cannot be initialized (errno: 97)\nstep 10 loss 2.3"
    )
    assert report.verdict == "healthy"


def test_a_segmentation_fault_that_nothing_explains_is_unknown():
    report = report_of("$ pip install torch==2.1.0\n$ python train.py\nSegmentation fault (core dumped)\n")
    assert report.verdict == "unknown"
    assert [seen.value for seen in report.unexplained] == ["Segmentation fault (core dumped)"]


@pytest.mark.parametrize(
    "said",
    [
        "Segmentation fault (core dumped)",
        "Segmentation fault",
        "Illegal instruction (core dumped)",
        "Process finished with exit code -1073741819 (0xC0000005)",
        "Windows fatal exception: access violation",
    ],
)
def test_a_crash_in_native_code_alone_asks_for_its_python_stack(said):
    report = report_of(said)
    assert (report.verdict, [seen.value for seen in report.unexplained]) == ("unknown", [said])
    assert "faulthandler" in report.deciding_facts[0]


@pytest.mark.parametrize(
    "text",
    [
        "something is odd with torchrun on my nodes",
        "the optimizer takes 80% of an iteration in DeepSpeed with an offload",
        "we run on 8xH100 and get an MFU of 18 %",
    ],
)
def test_words_of_training_and_names_of_cards_are_not_about_nothing(text):
    """The screen says "nothing in this text is about a GPU, a driver or a training run" where nothing is recognised."""
    report = report_of(text)
    assert report.recognised or report.findings
