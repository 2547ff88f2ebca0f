"""Trouble that somebody says is not there is nobody's fault, and trouble beside it still is."""

from __future__ import annotations

import pytest

from gpudoc.doctor.complaint import is_denied
from gpudoc.facts.readers import read
from tests.doctor.causes.judge import first, report_of


@pytest.mark.parametrize("text", [
    "I ran it again on the A100. No CUDA out of memory this time, everything trains as expected.",
    "Ran the job overnight. No CUDA out of memory this time, 12 epochs done, loss 0.31.",
    "Checked the node after the burn-in: no Xid 79 in dmesg, no ECC errors, nvidia-smi lists all 8 GPUs.",
    "Two weeks of uptime since we swapped the riser, and not a single Xid in the kernel log.",
    "We have not had an NCCL timeout since the switch firmware was updated.",
    "The NCCL timeout did not come back after the update; the run has finished.",
    "nvidia-smi -q shows 0 uncorrectable ECC errors and no retired pages, so the card looks good to me.",
    "With --shm-size=16g there is no bus error any more.",
    "Ran memtest on the card for 12 hours without any ECC error.",
    "The out-of-memory error has disappeared after I set gradient_accumulation_steps to 4.",
    "换成 batch size 2 之后就没有再 out of memory 了",
])  # fmt: skip
def test_a_text_that_only_denies_trouble_is_healthy(text):
    report = report_of(text)
    assert report.verdict == "healthy"
    assert [f for f in report.findings if f.severity != "info"] == []
    assert report.understood[0].fact in ("denied", "solved")
    assert report.understood[0].value == text


def test_the_screen_says_what_was_denied():
    from gpudoc.render.doctor import render

    said = render(report_of("Checked the node: no Xid 79 in dmesg."), width=100)
    assert "It says that the trouble did not occur: Checked the node: no Xid 79 in dmesg.  (line 1)" in said


@pytest.mark.parametrize(("text", "cause"), [
    ("No Xid in dmesg, yet the job dies with CUDA error: an illegal memory access was encountered", "illegal_memory_access"),
    ("There is no Xid before it, only: NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.", "gpu_fallen_off_bus"),
    ("No NCCL error. No ECC error.\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom_capacity"),
    ("I can't get rid of the CUDA out of memory error, even with batch size 1.", "oom_capacity"),
])  # fmt: skip
def test_trouble_beside_what_is_denied_is_found(text, cause):
    assert first(text) == cause


@pytest.mark.parametrize("text", [
    "No CUDA out of memory this time, but after 200 steps: RuntimeError: NCCL communicator was aborted on rank 3.",
    "No Xid and no ECC error, but the training hangs at the first step.",
])  # fmt: skip
def test_a_text_that_goes_on_with_other_trouble_is_not_healthy(text):
    assert report_of(text).verdict != "healthy"


def test_what_a_log_prints_denies_nothing():
    log = "\n".join(f"step {n} loss {1 / n:.3f}" for n in range(1, 40))
    assert first(f"{log}\nNVRM: Xid (PCI:0000:41:00): 79, no CUDA out of memory, GPU has fallen off the bus.")


@pytest.mark.parametrize(
    ("said", "denied"),
    [
        ("there is no out of memory", True),
        ("it was never that out of memory", True),
        ("the out of memory is gone", True),
        ("out of memory no longer", True),
        ("no luck: out of memory", False),
        ("it does not help, out of memory", False),
        ("it is not slow but out of memory", False),
        ("RuntimeError: out of memory", False),
        ("it runs without map_location, out of memory", False),
    ],
)
def test_a_clause_that_denies_a_message_takes_it_back(said, denied):
    from gpudoc.doctor.causes.sign import words

    text = read(said).text
    mention = text.find(words("out of memory"))
    assert mention is not None
    assert is_denied(text, mention) is denied
