from __future__ import annotations

import pytest

from gpudoc.doctor.examine import examine_text
from gpudoc.doctor.registry import ruled_out
from gpudoc.facts.model import Driver, Gpu, Link, Machine, TorchBuild, fact_at
from gpudoc.knowledge.cause_rows import ruled_out_by
from tests.doctor.causes.judge import report_of


def test_only_causes_whose_facts_are_there_are_ruled_out():
    assert ruled_out(Machine(), ()) == ()
    machine = Machine(driver=Driver(module_version="550.54.15"), torch=TorchBuild(cuda_version=(12, 4)))
    assert ruled_out(machine, ()) == ("driver_too_old",)
    assert ruled_out(machine, {"driver_too_old"}) == ()


def test_a_fact_of_gpus_must_be_that_of_each():
    linked = Gpu(index=0, link=Link(width=16, width_max=16))
    assert ruled_out(Machine(gpus=(linked,)), ()) == ("pcie_link_degraded",)
    assert ruled_out(Machine(gpus=(linked, Gpu(index=1))), ()) == ()
    assert ruled_out(Machine(gpus=()), ()) == ()


def test_each_fact_of_a_row_is_one_of_a_machine_or_of_its_gpus():
    assert len(ruled_out_by()) > 15
    for path in {path for paths in ruled_out_by().values() for path in paths}:
        of_gpus = path.startswith("gpus.")
        fact_at(Gpu(index=0) if of_gpus else Machine(), path.removeprefix("gpus."))


def test_a_log_of_losses_rules_nothing_out_and_is_healthy():
    report = report_of("Epoch 1 step 2 loss 3.0\nEpoch 1 step 3 loss 2.5")
    assert (report.verdict, report.passed) == ("healthy", ())


def test_a_report_of_versions_rules_out_what_they_settle():
    report = report_of(
        "PyTorch version: 2.6.0+cu124\nCUDA used to build PyTorch: 12.4\nNvidia driver version: 560.35.03"
    )
    assert report.verdict == "healthy"
    assert set(report.passed) == {"cpu_only_torch", "wrong_accelerator_build", "driver_too_old"}


SLOW = "My training is slow, the GPU waits, and I use one DataLoader worker for images on NFS."


@pytest.mark.parametrize("figures", [
    "data 0.02s step 1.00s\ndata 0.02s step 1.01s\ndata 0.02s step 1.00s",
    "7.1% of the step time is in DataLoader.",
    "data loading is only 2 % of the step time",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__  1.20%  41.0ms  1.20%  41.0ms  102.500us  400",
])  # fmt: skip
def test_words_blame_no_loader_whose_share_of_the_step_is_measured_and_small(figures):
    of_data = {"dataloader_bottleneck", "too_few_workers", "slow_storage", "decode_bound"}
    assert of_data & {f.id for f in report_of(SLOW).findings}
    report = report_of(f"{SLOW}\n{figures}")
    assert not of_data & {f.id for f in report.findings}
    assert of_data <= set(report.passed)


def test_a_large_share_next_to_a_small_one_rules_nothing_out():
    log = "7.1% of the step time is in DataLoader.\n61.0% of the step time is in DataLoader."
    assert [f.id for f in report_of(log).findings][:1] == ["dataloader_bottleneck"]


def test_what_takes_longer_than_its_step_is_less_sure_than_a_share_of_it():
    apart, within = (report_of(f"data_time: {t} batch_time: 0.4\n" * 2).findings[0] for t in ("3.2", "0.3"))
    assert apart.id == within.id == "dataloader_bottleneck"
    assert apart.confidence < within.confidence
    assert "next to steps of 0.4 s" in apart.evidence[0].value


REPORT = """PyTorch version: 2.6.0+cu126
CUDA used to build PyTorch: 12.6
OS: {system}
Is CUDA available: False
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 3060
Nvidia driver version: {driver}
"""


def test_words_do_not_guess_what_facts_rule_out():
    """Such words go with a torch without CUDA; this one says of itself that it has it."""
    report = examine_text([("report.txt", REPORT.format(system="Ubuntu 22.04", driver="560.94").encode())])
    assert "cpu_only_torch" in report.passed
    assert "cpu_only_torch" not in {finding.id for finding in report.findings}


@pytest.mark.parametrize(
    ("system", "first"),
    [("Microsoft Windows 11 Pro (10.0.22631 64-bit)", "driver_too_old"), ("Ubuntu 22.04.4 LTS (x86_64)", None)],
)
def test_the_oldest_driver_is_that_of_the_system(system, first):
    report = examine_text([("report.txt", REPORT.format(system=system, driver="526.98").encode())])
    assert next((finding.id for finding in report.findings if finding.severity == "broken"), None) == first
