"""`gpudoc bench` on CUDA: every case gives its rows, checked data and the modelled speed; nothing is left behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.standin.gpus import PATIENCE_S, ROOT

pytestmark = pytest.mark.standin

# rank 1 starts and never joins the others
HANGS = """
import sys, time
import torch.distributed
from gpudoc.bench import collective
if sys.argv[1] == "1":
    torch.distributed.init_process_group = lambda *a, **k: time.sleep(600)
collective.main()
"""


# read by every process as it starts: a CPU that computes for two GPUs, and for others, is no hang
PATIENT = f"""
from gpudoc.bench import run
from gpudoc.bench.cases import all_reduce
run.SILENCE_S, all_reduce.TIMEOUT_S = {PATIENCE_S}, {PATIENCE_S - 100}
"""


@pytest.fixture
def patient(standin, tmp_path):
    """Stand-in GPUs beside which a bench waits as long as it takes."""
    (tmp_path / "sitecustomize.py").write_text(PATIENT)

    def make(**settings):
        gpus = standin(**settings)
        gpus.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
        return gpus

    return make


def measured(done):
    """The record that a command printed, after the usual exit codes: 0, or 1 where something is wrong."""
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def rows(record, name, **parameters):
    named = [row for row in record["measurements"] if row["name"] == name]
    return [row for row in named if parameters.items() <= row["parameters"].items()]


def failures(record):
    return [one["because"] for one in record["not_measured"] if one["failed"]]


def left_behind(gpus):
    """Processes that still live and have a context."""
    return [pid for pid, _, _ in gpus.holders() if Path(f"/proc/{pid}").exists()]


def test_copies_of_all_sizes_are_checked_without_killing_the_context(patient):
    record = measured(patient(memory="4G").gpudoc("bench", "--quick", "--device", "cuda", "--only", "copies", "--json"))
    assert failures(record) == []
    assert {row["parameters"]["bytes"] for row in rows(record, "h2d")} >= {4096, 2**28}
    assert [row["corrupted"] for row in record["measurements"] if row["corrupted"]] == []


def test_a_whole_run_on_the_second_gpu_gives_checked_rows_of_every_case_and_leaves_nothing(patient):
    gpus = patient(gpus=2, memory="2560M")
    done = gpus.run(
        sys.executable,
        "-c",
        "import sys; from gpudoc.cli.app import main\n"
        "sys.argv = ['gpudoc', 'bench', '--quick', '--device', 'cuda:1', '--json']\n"
        "try:\n    main()\n"
        "finally:\n    print('torch' in sys.modules, file=sys.stderr)\n",
    )
    record = measured(done)
    assert failures(record) == []
    assert [row["corrupted"] for row in record["measurements"] if row["corrupted"]] == []
    named = {row["name"] for row in record["measurements"] if row["device"] == "cuda:1"}
    assert named >= {"launch_queued", "h2d", "d2h", "bidirectional", "device_copy", "matmul", "p2p", "all_reduce"}
    assert {row["name"] for row in record["measurements"] if row["device"] == "cpu"} >= {"memory_copy", "loader_batch"}
    assert {(row["parameters"]["from"], row["parameters"]["to"]) for row in rows(record, "p2p")} == {(0, 1), (1, 0)}
    assert record["environment"]["pci_address"] == "0000:11:00.0"
    # NVML's counters are those of that GPU, and nobody but the run itself was seen on it
    assert all(row["context"]["link_width_max"] == 16.0 for row in rows(record, "matmul"))
    assert [row["name"] for row in record["measurements"] if "shared_gpu" in {one["id"] for one in row["doubts"]}] == []
    # the parent only listens: without torch it can have no context
    assert done.stderr.splitlines()[-1] == "False"
    assert left_behind(gpus) == []


def test_a_soak_names_heat_and_gives_the_curve(patient):
    options = ("--quick", "--soak", "1s", "--device", "cuda", "--only", "launch", "--json")
    record = measured(patient(memory="2560M", math_ops="1e9", hot=1).gpudoc("bench", *options))
    assert failures(record) == []
    (start,), (end,) = rows(record, "soak_start"), rows(record, "soak_end")
    assert end["context"]["throttled_sw_thermal_share"] > 0
    assert start["parameters"]["seconds"] == 1
    (found,) = [one for one in record["findings"] if one["id"] == "thermal_throttle"]
    assert "at the end of 1 s" in found["evidence"][0]["value"]


def test_gpus_that_let_in_one_process_each_are_measured_without_an_all_reduce(patient):
    options = ("--quick", "--device", "cuda", "--only", "launch,all_reduce", "--json")
    record = measured(patient(gpus=2, exclusive=1).gpudoc("bench", *options))
    assert failures(record) == []
    assert rows(record, "launch_round_trip")
    (absent,) = [one for one in record["not_measured"] if one["case"] == "all_reduce"]
    assert "exclusive compute mode" in absent["because"]


def test_behind_a_mask_the_first_gpu_is_the_one_that_is_left(patient):
    options = ("--quick", "--device", "cuda", "--only", "launch", "--json")
    record = measured(patient(gpus=2).gpudoc("bench", *options, CUDA_VISIBLE_DEVICES="1"))
    assert failures(record) == []
    assert record["environment"]["pci_address"] == "0000:11:00.0"
    # the process that measures was seen there, by NVML, which counts the GPUs without the mask
    assert rows(record, "launch_round_trip")[0]["context"]["gpu_processes_max"] == 1.0


def test_each_speed_is_the_one_that_the_gpu_is_made_with(patient):
    # large operators without arithmetic, so that products take no minutes; the checks of data need the rest of it
    speeds = {"tflops": 120, "gbps": 800, "pcie_gbps": 12, "peer_gbps": 30}
    gpus = patient(gpus=2, clock="virtual", math_ops="2e9", **speeds)
    cases = "copies,device_memory,matmul,p2p"
    record = measured(gpus.gpudoc("bench", "--quick", "--device", "cuda", "--only", cases, "--json"))
    assert failures(record) == []

    def near(name, speed, **parameters):
        found = [row["value"] for row in rows(record, name, **parameters)]
        assert found, (name, parameters)
        assert found == [pytest.approx(speed, rel=0.05)] * len(found)

    for size in (2**24, 2**28):
        near("h2d", 12, host="pinned", bytes=size)
        near("d2h", 12, host="pinned", bytes=size)
    for name in ("device_read", "device_write", "device_copy", "device_triad"):
        near(name, 800)
    near("p2p", 30)
    # as the stand-in's products are: tf32 at half the rate of bf16, fp32 at 6 %
    for dtype, speed in (("bf16", 120), ("tf32", 60), ("fp32", 7.2)):
        near("matmul", speed, dtype=dtype)


def test_a_collective_that_hangs_on_the_gpus_leaves_no_process_on_them(standin):
    gpus = standin(gpus=2)
    code = f"""
import sys
from gpudoc.bench.cases import all_reduce
all_reduce.PROGRAM, all_reduce.TIMEOUT_S = (sys.executable, "-c", {HANGS!r}), 10.0
try:
    all_reduce.measure("nccl", "cuda", 2, [4096])
except RuntimeError as error:
    print(error)
"""
    done = gpus.run(sys.executable, "-c", code)
    assert "all-reduce over 2 processes hung for 10 s" in done.stdout, done.stderr
    assert left_behind(gpus) == []
