"""The whole flow in real processes that meet over gloo: under torchrun, and as srun starts it on several nodes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fleet import allocation
from gpudoc.fleet.allocation import AcrossOptions, check
from gpudoc.fleet.documents import load_record
from gpudoc.fleet.record import Spot
from tests.fleet.allocation import ROOT, SHORT, Allocation
from tests.waiting import wait_until

BENCH = ("bench", "--across", "--quick", "--device", "cpu", "--plain")
# a process that is gone is known to be after this long, instead of half a minute
IMPATIENT = """
from gpudoc.fleet import conductor, meeting
meeting.SILENCE_S, conductor._SLACK_S = 6.0, 30.0
"""


def children(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """The processes that measure: others only ask the machine, before anybody meets."""
    found = []
    for child in children(process):
        with contextlib.suppress(psutil.Error):
            found += [child] if "gpudoc.fleet.child" in " ".join(child.cmdline()) else []
    return found


def torchrun(folder, ranks: int, *arguments: str) -> subprocess.CompletedProcess:
    (folder / "sitecustomize.py").write_text(SHORT)
    start = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    return subprocess.run(
        [sys.executable, *start, "-m", "gpudoc", *BENCH, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
def test_three_ranks_under_torchrun_make_one_record(tmp_path):
    done = torchrun(tmp_path, 3, "--only", "digests,pairs", "--out", "fleet.json")
    # how fast a rank of a busy machine is says nothing, so the verdict may be either
    assert done.returncode in (0, 1), done.stderr
    record = load_record(tmp_path / "fleet.json")
    assert record.made["engine"] == "torchrun"
    assert [len(node.gpus) for node in record.nodes] == [3]
    assert record.nodes[0].missing is None
    # every rank met each of the other two
    pairs = [m for m in record.measures if m.scope == "pair" and m.attempt == 1]
    met = {frozenset(reading.at) for measure in pairs for reading in measure.readings if reading.samples}
    assert len(met) == 3
    seen = {(digest.product, next(iter(digest.seen))) for digest in record.digests}
    assert {digest.at for digest in record.digests} == {Spot(0, rank) for rank in range(3)}
    # equal cores and one library: one digest for each product
    assert len(seen) == len({product for product, _ in seen}) == 2
    # one process speaks
    assert done.stderr.count("measuring the CPU") == 1


@pytest.mark.slow
def test_four_ranks_under_torchrun_measure_everything(tmp_path):
    done = torchrun(tmp_path, 4, "--json", "--html", "fleet.html")
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "gpudoc.fleet.v1"
    names = {measure["name"] for measure in document["measures"]}
    assert names >= {
        "memory_copy",
        "cpu_matmul",
        "train_step",
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
    }
    assert {measure["load"] for measure in document["measures"] if measure["name"] == "memory_copy"} == {
        "alone",
        "together",
    }
    assert len(document["nodes"][0]["gpus"]) == 4
    steps = next(m for m in document["measures"] if m["name"] == "train_step" and m["attempt"] == 1)
    assert sorted(reading["at"] for reading in steps["readings"]) == [[[0, rank]] for rank in range(4)]
    assert all(min(reading["samples"]) > 0 for reading in steps["readings"])
    assert (tmp_path / "fleet.html").stat().st_size > 1000


@pytest.mark.slow
def test_two_nodes_of_two_ranks_are_told_apart_and_leave_nothing(tmp_path):
    with Allocation(tmp_path, nodes=2, tasks=2) as fleet:
        codes = fleet.start(*BENCH, "--only", "collectives,clock", "--out", "fleet.json").wait()
        assert codes[0] in (0, 1), fleet.said(0, "err").read_text()
        assert codes[1:] == [0, 0, 0]
        record = load_record(tmp_path / "fleet.json")
    assert record.made["engine"] == "srun"
    assert [len(node.gpus) for node in record.nodes] == [2, 2]
    scopes = {measure.scope for measure in record.measures if measure.name == "all_reduce"}
    assert scopes == {"node", "rail", "group"}
    rails = [m for m in record.measures if m.scope == "rail" and m.attempt == 1 and m.parameters["bytes"] == 8]
    assert {tuple(reading.at) for measure in rails for reading in measure.readings} == {
        (Spot(0, 0), Spot(1, 0)),
        (Spot(0, 1), Spot(1, 1)),
    }
    # one machine has one clock
    assert abs(record.nodes[1].clock_offset_s) < 1.0
    # names of hosts stay inside
    assert '"n0"' not in (tmp_path / "fleet.json").read_text()
    # the others say nothing
    assert [fleet.said(rank).read_text() for rank in (1, 2, 3)] == ["", "", ""]


@pytest.mark.slow
def test_a_node_that_is_killed_is_named_and_the_others_finish(tmp_path):
    with Allocation(tmp_path, nodes=3, patch=IMPATIENT) as fleet:
        fleet.start(*BENCH, "--only", "steps,pairs", "--bad-hosts", "--out", "fleet.json")
        told = fleet.said(0, "err")
        wait_until(lambda: "a training step" in told.read_text() or fleet.processes[0].poll() is not None)
        fleet.processes[1].send_signal(signal.SIGKILL)
        codes = fleet.wait()
        said = told.read_text()
        assert codes == [1, -signal.SIGKILL, 0], said
        record = load_record(tmp_path / "fleet.json")
    missing = [None if node.missing is None else (node.missing.reason, node.missing.attempts) for node in record.nodes]
    assert missing == [None, ("died", 2), None], said
    assert "n1: rank 1 has not been heard" in said
    # dead, and dead again when it was asked anew
    assert "n1" in fleet.said(0).read_text().split()
    # the two that were left met
    pairs = [reading for m in record.measures if m.scope == "pair" for reading in m.readings if reading.samples]
    assert (Spot(0, 0), Spot(2, 0)) in [tuple(sorted(reading.at)) for reading in pairs]


@pytest.mark.slow
def test_a_node_that_never_came_is_named_by_its_host(tmp_path):
    with Allocation(tmp_path, nodes=2, patch="from gpudoc.fleet import allocation\nallocation.JOIN_S = 8.0\n") as fleet:
        fleet.start(*BENCH, "--only", "digests", "--bad-hosts", "--out", "fleet.json", leave_out=(1,)).wait()
        record = load_record(tmp_path / "fleet.json")
    assert record.nodes[1].missing.reason == "no gpudoc"
    assert {digest.at for digest in record.digests} == {Spot(0, 0)}
    assert "n1: nothing was heard from it" in fleet.said(0, "err").read_text()
    # nothing is known of the machine
    assert fleet.said(0).read_text() == ""


def test_a_killed_rank_0_takes_everybody_and_every_child_with_it(tmp_path):
    with Allocation(tmp_path, nodes=2, patch=IMPATIENT) as fleet:
        fleet.start(*BENCH, "--only", "steps")
        wait_until(lambda: "a training step" in fleet.said(0, "err").read_text() and all(map(workers, fleet.processes)))
        family = [child for process in fleet.processes for child in children(process)]
        fleet.processes[0].send_signal(signal.SIGKILL)
        assert fleet.processes[1].wait(120) == 1
        said = fleet.said(1, "err").read_text()
        assert "has ended" in said or "not been heard" in said
        assert "Traceback" not in said
        assert psutil.wait_procs(family, timeout=60)[1] == []


@pytest.mark.slow
def test_another_version_is_named_and_left_out(tmp_path):
    patch = 'import os\nimport gpudoc\nif os.environ["SLURM_PROCID"] == "1":\n    gpudoc.__version__ = "0.0.1"\n'
    with Allocation(tmp_path, nodes=3, patch=patch) as fleet:
        fleet.start(*BENCH, "--only", "digests", "--out", "fleet.json").wait()
        record = load_record(tmp_path / "fleet.json")
    assert record.nodes[1].missing.reason == "another version"
    assert "0.0.1" in record.nodes[1].missing.because
    assert {digest.at.node for digest in record.digests} == {0, 2}


@pytest.mark.slow
def test_without_an_engine_this_node_is_measured_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SHORT)
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", *BENCH, "--only", "digests", "--out", "fleet.prom"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "1 CPU rank on 1 node" in done.stderr
    assert "# TYPE gpudoc" in (tmp_path / "fleet.prom").read_text()


@pytest.fixture
def beside_ann(monkeypatch):
    """This node alone, where somebody else computes as its greeting says."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    greet = allocation.hello
    monkeypatch.setattr(
        allocation, "hello", lambda *told: {**greet(*told), "sharers": "other processes compute on cuda:0: ann's"}
    )
    begun = []
    monkeypatch.setattr(allocation, "_conduct", lambda *_: begun.append(True))
    return begun


def test_a_node_where_others_compute_ends_the_run_before_anything_is_measured(beside_ann):
    with pytest.raises(GpudocError, match="other processes compute on cuda:0: ann's") as caught:
        allocation.run(AcrossOptions(device="cpu"))
    assert caught.value.exit_code is ExitCode.BAD_ANSWER
    assert "--shared" in caught.value.hint
    assert beside_ann == []


def test_with_shared_it_is_said_and_goes_on(beside_ann):
    said = []
    heard = SimpleNamespace(say=said.append, advance=lambda *_: None)
    assert allocation.run(AcrossOptions(device="cpu", shared=True), heard) is not None
    assert [line for line in said if "ann's; its figures are valid only while they run" in line]
    assert beside_ann == [True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (AcrossOptions(device="cuda:1"), "names one"),
        (AcrossOptions(only=("speed",)), "no such part"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(options, said):
    with pytest.raises(GpudocError, match=said):
        check(options)


def test_a_data_folder_must_be_there(tmp_path):
    with pytest.raises(GpudocError, match="not a folder"):
        check(AcrossOptions(data=tmp_path / "none"))
