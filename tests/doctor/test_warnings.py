"""Messages that stop nothing are explained and called healthy, alone; those that tell of a fault are not."""

from __future__ import annotations

import pytest

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.readers import read
from gpudoc.knowledge.cause_rows import area_of, rows_by_area
from gpudoc.knowledge.tables import FOLDER

ORDER = "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.\n"
FORKED = "huggingface/tokenizers: The current process just got forked. Disabling parallelism to avoid deadlocks...\n"


def report_of(text):
    reading = read(text)
    return diagnose(Evidence(machine=reading.machine, source="file", reading=reading))


@pytest.mark.parametrize(
    "text",
    [
        ORDER,
        FORKED,
        f"{ORDER}Failure to do this will result in PyTorch skipping the first value of the learning rate schedule.\n",
        f"I train with my own loop and see\n{ORDER}What did I do wrong?\n",
        "UserWarning: Attempting to run cuBLAS, but there was no current CUDA context! Attempting to set one...\n",
    ],
)
def test_a_message_that_stops_nothing_is_healthy_and_explained(text):
    report = report_of(text)
    assert report.verdict == "healthy"
    assert [area_of(f.id) for f in report.findings] == ["warnings"]
    assert report.findings[0].fix
    assert not report.unexplained


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ("Training is very slow: the GPU is at 10 %, one core at 100 %, and num_workers=0.\n", "too_few_workers"),
        ("KeyError: 'label'\n", "missing_key"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 256x10)\n", "shape_mismatch"),
    ],
)
def test_next_to_trouble_it_explains_nothing_of_it(more, cause):
    report = report_of(f"{FORKED}{more}")
    assert report.verdict != "healthy"
    assert report.findings[0].id == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "UserWarning: Using a target size (torch.Size([8])) that is different to the input size (torch.Size([8, 1]))",
            "target_shape_wrong",
        ),
        ("UserWarning: None of the inputs have requires_grad=True. Gradients will be None", "no_gradient"),
        ("UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling", "training_on_cpu"),
    ],
)
def test_a_warning_of_a_real_fault_is_one(text, cause):
    report = report_of(text)
    assert report.verdict in ("warning", "broken", "unknown")
    assert report.findings[0].id == cause


def test_each_of_them_is_for_information_only():
    rows = rows_by_area(FOLDER / "causes")["warnings"]
    assert rows
    assert {CATALOGUE[name].severity for name in rows} == {"info"}
