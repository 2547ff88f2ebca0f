"""`gpudoc bench --across` on 2 x 4 GPUs over their NCCL: the slow one and the one that corrupts are named, no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gpudoc.bench.collective import OPERATIONS
from gpudoc.fleet.documents import load_record
from gpudoc.fleet.record import Spot
from tests.fleet.allocation import free_port
from tests.standin.gpus import PATIENCE_S, ROOT

pytestmark = pytest.mark.standin

NODES, GPUS = 2, 4
SLOW, CORRUPT = 2, 5
# a CPU that computes for eight GPUs, and for others, is no hang
PATIENT = f"""
from gpudoc.fleet import conductor, hand, meeting, stages
conductor._SLACK_S = hand.START_S = {PATIENCE_S}
meeting.SILENCE_S = 300.0
short = stages.Times(alone=0.1, together=0.1, steps=0.1, digests=0.1, sweep=5.0, pair=0.5, host=0.1)
stages.QUICK = stages.FULL = short
stages.DIGEST_SIZE = 256
"""


def measure(gpus, folder, *arguments):
    """The command in one process for each node, which sees that node's GPUs only."""
    (folder / "sitecustomize.py").write_text(PATIENT)
    common = {
        **gpus.environment,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "SLURM_STEP_NUM_TASKS": str(NODES),
        "SLURM_STEP_NODELIST": f"n[0-{NODES - 1}]",
    }
    command = [sys.executable, "-m", "gpudoc", "bench", "--across", "--quick", "--plain", *arguments]
    started = []
    for node in range(NODES):
        seen = ",".join(str(node * GPUS + gpu) for gpu in range(GPUS))
        own = {"SLURM_PROCID": str(node), "SLURM_LOCALID": "0", "SLURMD_NODENAME": f"n{node}"}
        with (folder / f"{node}.out").open("w") as out, (folder / f"{node}.err").open("w") as err:
            environment = {**common, **own, "CUDA_VISIBLE_DEVICES": seen}
            started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err))
    try:
        codes = [process.wait(2 * PATIENCE_S) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return codes, (folder / "0.out").read_text(), (folder / "0.err").read_text()


def test_the_slow_gpu_and_the_corrupting_one_are_named_and_their_nodes_drained(standin, tmp_path):
    # so slow that a step takes its modelled time, also on a busy machine; virtual time does not wait for one
    speeds = {"clock": "virtual", "gbps": 0.15, "tflops": 600}
    gpus = standin(gpus=8, memory="2560M", slow_gpu=SLOW, slow_times=1.5, corrupt_gpu=CORRUPT, **speeds)
    codes, out, err = measure(gpus, tmp_path, "--only", "steps,digests", "--json", "--out", "fleet.json")
    assert codes[0] == 1, err
    document = json.loads(out)
    record = load_record(tmp_path / "fleet.json")
    assert [len(node.gpus) for node in record.nodes] == [GPUS, GPUS]
    addresses = [gpu.pci_address for node in record.nodes for gpu in node.gpus]
    assert len(set(addresses)) == NODES * GPUS
    assert {node.versions["cublas"] for node in record.nodes} == {"12.8.4"}
    found = {(one["id"], json.dumps(one["at"])) for one in document["verdict"]["findings"] if one["drain"]}
    assert {place for _, place in found} == {
        json.dumps([[SLOW // GPUS, SLOW % GPUS]]),
        json.dumps([[CORRUPT // GPUS, CORRUPT % GPUS]]),
    }, found
    # each of the two was measured twice, in other processes
    assert {digest.attempt for digest in record.digests} == {1, 2}
    wrong = Spot(CORRUPT // GPUS, CORRUPT % GPUS)
    usual = {(d.product, next(iter(d.seen))) for d in record.digests if d.at != wrong}
    assert len(usual) == len({product for product, _ in usual})
    assert not usual & {(d.product, next(iter(d.seen))) for d in record.digests if d.at == wrong}
    assert list(gpus.holders()) == []


def test_collectives_and_pairs_over_nccl_give_figures_everywhere_and_leave_no_context(standin, tmp_path):
    gpus = standin(gpus=8, memory="2560M", clock="virtual")
    codes, _, err = measure(gpus, tmp_path, "--only", "collectives,pairs,clock", "--out", "fleet.json")
    assert codes[1] == 0, err
    record = load_record(tmp_path / "fleet.json")
    swept = [m for m in record.measures if m.scope in ("node", "rail", "group") and "part" not in m.parameters]
    swept += [m for m in record.measures if m.parameters.get("part") == "all"]
    given = {(m.name, m.scope) for m in swept for reading in m.readings if reading.samples}
    assert given == {(name, scope) for name in OPERATIONS for scope in ("node", "rail", "group")}
    # how far a busy machine gets is no matter
    failed = {reading.failed for m in swept for reading in m.readings if reading.failed}
    assert failed <= {"no time was left for it", "too little memory is free for it"}
    pairs = [m for m in record.measures if m.scope == "pair" and m.attempt == 1]
    assert sum(len(m.readings) for m in pairs) == GPUS
    assert isinstance(record.nodes[1].clock_offset_s, float)
    assert list(gpus.holders()) == []
