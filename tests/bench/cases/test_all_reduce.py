import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from gpudoc.bench import run as room
from gpudoc.bench.assess import assess
from gpudoc.bench.cases import all_reduce
from gpudoc.bench.cases.all_reduce import CASE, measure
from gpudoc.bench.settle import settle
from tests.bench.builders import situation
from tests.bench.host_gpu import HostGpu, bench

# rank 1 starts and never joins the others
HANGS = textwrap.dedent("""
    import sys, time
    import torch.distributed
    from gpudoc.bench import collective
    if sys.argv[1] == "1":
        torch.distributed.init_process_group = lambda *a, **k: time.sleep(600)
    collective.main()
""")


def own_children():
    found = psutil.Process().children(recursive=True)
    return {one for one in found if one.is_running() and one.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture
def before():
    """The processes that earlier tests of this worker may have left."""
    return own_children()


def test_a_real_all_reduce_over_two_processes():
    times = measure("gloo", "cpu", 2, [4096, 1 << 20])
    assert set(times) == {4096, 1 << 20}
    assert all(len(one) == 10 and min(one) > 0 for one in times.values())


def test_a_backend_that_fails_says_so():
    with pytest.raises(RuntimeError, match=r"all-reduce over 1 processes failed: .*no-such-backend"):
        measure("no-such-backend", "cpu", 1, [4096])


def test_a_rank_that_fails_ends_the_others_that_wait_for_it(monkeypatch, before):
    code = "import sys, time; sys.exit('ValueError: no GPU left') if sys.argv[1] == '1' else time.sleep(600)"
    monkeypatch.setattr(all_reduce, "PROGRAM", (sys.executable, "-c", code))
    with pytest.raises(RuntimeError, match="over 3 processes failed: ValueError: no GPU left"):
        measure("gloo", "cpu", 3, [4096])
    assert own_children() <= before


def test_a_collective_that_hangs_is_ended_with_all_its_processes_and_the_rank_named(monkeypatch, before):
    # a shell, which also a busy machine starts long before those two seconds are over
    code = '[ "$1" = 1 ] || echo ready to join; exec sleep 600'
    monkeypatch.setattr(all_reduce, "PROGRAM", ("sh", "-c", code, "rank"))
    monkeypatch.setattr(all_reduce, "JOIN_S", 2.0)
    with pytest.raises(RuntimeError, match="hung for 2 s: rank 1 did not join"):
        measure("gloo", "cpu", 2, [4096])
    assert own_children() <= before


def test_the_clock_of_the_exchange_begins_when_all_are_ready_and_meanwhile_there_are_signs_of_life(
    monkeypatch, tmp_path
):
    """Rank 1 reads its libraries for longer than an exchange may take."""
    line = '{"4096": [0.001]}'
    code = f"[ $1 = 0 ] || until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo ready to join; echo '{line}'"
    monkeypatch.setattr(all_reduce, "PROGRAM", ("sh", "-c", code, "rank"))
    monkeypatch.setattr(all_reduce, "_SIGN_S", 0.0)
    signs = []

    def is_alive():
        signs.append(1)
        if len(signs) == 3:
            # nothing is left of it once the ranks are ready, unless it begins then
            monkeypatch.setattr(
                all_reduce.time, "monotonic", lambda now=all_reduce.time.monotonic: now() + all_reduce.TIMEOUT_S
            )
            (tmp_path / "go").touch()

    assert measure("gloo", "cpu", 2, [4096], is_alive) == {4096: [0.001]}
    assert len(signs) >= 3


def test_a_rank_that_hangs_after_joining_is_told_apart(monkeypatch, before):
    monkeypatch.setattr(all_reduce, "PROGRAM", ("sh", "-c", "echo ready to join; exec sleep 600", "rank"))
    monkeypatch.setattr(all_reduce, "TIMEOUT_S", 0.5)
    with pytest.raises(RuntimeError, match="hung for 0 s: all joined, 0 ended"):
        measure("gloo", "cpu", 2, [4096])
    assert own_children() <= before


def test_ranks_that_hang_end_with_the_process_that_measures():
    code = (
        "import sys; from gpudoc.bench.cases import all_reduce\n"
        f"all_reduce.PROGRAM = (sys.executable, '-c', {HANGS!r})\n"
        "print('started', flush=True); all_reduce.measure('gloo', 'cpu', 2, [4096])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "started\n"
        ranks = []
        while len(ranks) < 2:
            ranks = psutil.Process(parent.pid).children()
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert psutil.wait_procs(ranks, timeout=60)[1] == []


def test_a_hang_costs_only_this_case():
    assert all_reduce.TIMEOUT_S + all_reduce.KILL_S < room.SILENCE_S


def test_the_rank_beside_the_measuring_process_is_no_stranger_on_the_gpu(monkeypatch):
    monkeypatch.setattr(all_reduce, "measure", lambda backend, kind, ranks, sizes, is_alive: {1 << 20: [0.001] * 10})
    (reading,) = CASE.run(bench(gpu=HostGpu(), num_gpus=2))
    reading.context["gpu_processes_max"] = 2.0
    (row,) = settle([reading])
    assert assess(row, situation([row])).doubts == ()
    reading.context["gpu_processes_max"] = 3.0
    (row,) = settle([reading])
    assert [doubt.text for doubt in assess(row, situation([row])).doubts] == ["GPU shared with 1"]


def test_one_gpu_reduces_with_nobody():
    assert CASE.absent_because(bench(gpu=HostGpu(), num_gpus=1)) == "there is only one GPU"
    assert CASE.absent_because(bench(gpu=HostGpu(), num_gpus=8)) == ""


def test_gpus_that_let_in_one_process_reduce_nothing_beside_the_one_that_measures():
    assert "exclusive compute mode" in CASE.absent_because(bench(gpu=HostGpu(), num_gpus=2, is_exclusive=True))
