"""A whole bench of a GPU, as the command gives it; `make gpu-check` runs it on a real one."""

import json
import subprocess
import sys

import pytest
import torch

from tests.gpu.half import half_of
from tests.standin.gpus import PATIENCE_S, real_gpu

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def document():
    command = [sys.executable, "-m", "gpudoc", "bench", "--quick", "--device", "cuda", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


of_a_card = real_gpu("its speeds, ceilings and counters are a card's own")


def half_here():
    return half_of(torch.cuda.get_device_capability())[0]


def rows(document, name, **parameters):
    return [
        row
        for row in document["measurements"]
        if row["name"] == name and parameters.items() <= row["parameters"].items()
    ]


@of_a_card
def test_nothing_is_above_what_the_hardware_can_do(document):
    assert not [row for row in document["measurements"] if row["value"] is None]
    assert not [row for row in document["measurements"] if row["corrupted"]]


@of_a_card
def test_copies_products_and_memory_have_ceilings_and_counters(document):
    judged = [
        *rows(document, "h2d", host="pinned"),
        *rows(document, "matmul", dtype=half_here()),
        *rows(document, "device_copy"),
    ]
    assert judged
    for row in judged:
        assert row["ceiling"], row["ceiling_from"]
        assert "sm_clock_mhz" in row["context"], "the counters were read during the run"


@of_a_card
def test_figures_repeat_within_a_run(document):
    copy = max(rows(document, "h2d", host="pinned"), key=lambda row: row["value"])
    steady = max(rows(document, "matmul", dtype=half_here(), mode="sustained"), key=lambda row: row["value"])
    assert (copy["p90"] - copy["p10"]) / copy["p50"] < 0.02
    assert (steady["p90"] - steady["p10"]) / steady["p50"] < 0.05


def test_a_device_that_does_not_exist_is_said():
    command = [sys.executable, "-m", "gpudoc", "bench", "--quick", "--only", "clock", "--device", "cuda:99"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "cuda:99" in done.stderr
    assert "Traceback" not in done.stderr
