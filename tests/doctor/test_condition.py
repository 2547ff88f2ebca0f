from __future__ import annotations

import pytest

from gpudoc.doctor.setting import condition
from gpudoc.facts.model import Gpu, Machine
from gpudoc.facts.readers import read
from gpudoc.facts.readers.model import Reading
from gpudoc.units import GIB
from tests.doctor.causes.judge import report_of

SMI = """| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |
| 55%   68C    P2            402W /  450W | {memory} |     {busy}%      Default |
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A     12345      C   python                                      18420MiB |
+-----------------------------------------------------------------------------------------+
"""
BUSY = SMI.format(memory="  18432MiB /  24564MiB", busy=98)
CSV = "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n" + "".join(
    f"{n}, NVIDIA A100-SXM4-80GB, {90 + n} %, 61234 MiB, 81920 MiB\n" for n in range(8)
)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (BUSY, "GPU 0 98 % busy, 18 GiB of 24 GiB used"),
        (SMI.format(memory="Not Supported         ", busy=0), "GPU 0 0 % busy"),
        (">>> torch.cuda.is_available()\nTrue\n", "torch sees a GPU"),
    ],
)
def test_a_machine_that_works_is_healthy_with_what_was_seen(text, seen):
    report = report_of(text)
    assert (report.verdict, report.findings) == ("healthy", ())
    assert seen in [one.value for one in report.understood]


@pytest.mark.parametrize("text", [BUSY, CSV, f"[HAMI-core Msg(22:140:libvgpu.c:836)]: Initializing.....\n{BUSY}"])
def test_a_table_with_nothing_else_said_gets_no_guess(text):
    report = report_of(text)
    assert (report.verdict, report.findings) == ("healthy", ())


def test_many_gpus_are_said_in_one_line():
    gpus = tuple(
        Gpu(index=n, utilization_percent=90 + n, memory_used_bytes=(50 + n) * GIB, memory_total_bytes=80 * GIB)
        for n in range(8)
    )
    (seen,) = condition(Reading(machine=Machine(gpus=gpus)))
    assert seen.value == "8 GPUs 90 to 97 % busy, 50 GiB to 57 GiB of 80 GiB used"


def test_a_text_without_facts_has_no_condition():
    assert condition(read("it works")) == ()
