"""The agents of several nodes meet, and nothing is unpickled that one of them did not write."""

from __future__ import annotations

import os
import pickle
import subprocess
from base64 import b64encode
from datetime import timedelta
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.process.arguments import own_python
from gpudoc.process.seal import KEY, SealError
from gpudoc.train.start import launch, rendezvous, run_key
from gpudoc.train.start.launch import Nodes, torchrun_options

AGENT = "from gpudoc.train.start.launch import agent; sys.exit(agent(sys.argv[1:]))"
RUN_ID = "7.0"
RUN_KEY = "the key of this run, 0123456789"


class Evil:
    """What leaves a file wherever it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def store():
    """A stranger's store at the port at which the nodes are to meet, there before them."""
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))


def agent(port: int, *command: str, key: str = RUN_KEY) -> subprocess.Popen[str]:
    """The agent of a node; one without a key meets as torchrun by itself does."""
    nodes = Nodes(count=2, endpoint=f"127.0.0.1:{port}", run_id=RUN_ID)
    environment = {**os.environ, KEY: key, "LOGLEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    own = torchrun_options(1, nodes) if key else [
        "--nproc-per-node=1", "--nnodes=2", "--rdzv-backend=c10d",
        f"--rdzv-endpoint={nodes.endpoint}", f"--rdzv-id={RUN_ID}",
    ]  # fmt: skip
    options = ["--local-addr=127.0.0.1", "--max-restarts=0", *own, "--no-python"]
    return subprocess.Popen(
        [*own_python(AGENT), str(os.getpid()), *options, *command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def plant(store, mark: Path) -> None:
    store.set(f"torch.rendezvous.{RUN_ID}", b64encode(pickle.dumps(Evil(mark))))


def test_two_nodes_with_one_key_meet_and_run(store, tmp_path):
    both = [agent(store.port, "sh", "-c", f"mkdir {tmp_path}/$RANK-of-$WORLD_SIZE") for _ in range(2)]
    said = [process.communicate(timeout=240)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-of-2", "1-of-2"]


def test_what_a_stranger_left_there_is_not_unpickled(store, tmp_path):
    plant(store, tmp_path / "was_run")
    process = agent(store.port, "true")
    said = process.communicate(timeout=240)[1]
    assert not (tmp_path / "was_run").exists()
    assert process.returncode == 1
    assert KEY in said


def test_without_a_key_it_is_which_is_why_there_is_one(store, tmp_path):
    plant(store, tmp_path / "was_run")
    process = agent(store.port, "true", key="")
    process.communicate(timeout=240)
    assert (tmp_path / "was_run").exists()


SEVERAL = Nodes(count=2, endpoint="node-1:29500", run_id=RUN_ID)


@pytest.mark.parametrize("nodes", [Nodes(), Nodes(endpoint="/tmp/x/rendezvous"), SEVERAL])
def test_every_run_meets_where_what_is_not_signed_is_not_read(nodes):
    assert f"--rdzv-backend={rendezvous.BACKEND}" in torchrun_options(2, nodes)


def test_without_a_key_nobody_is_met(monkeypatch):
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.setattr(rendezvous, "create_backend", lambda parameters: pytest.fail("it went to the port"))
    with pytest.raises(SealError, match=KEY):
        rendezvous._create(RendezvousParameters(rendezvous.BACKEND, "127.0.0.1:1", RUN_ID, 2, 2))


def test_nodes_that_agree_on_no_key_start_no_rank(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY, raising=False)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "run_key", lambda variables, folder: run_key.run_key(variables, folder, wait_s=0.0))
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **__: pytest.fail("ranks were started"))
    with pytest.raises(GpudocError, match="has left no key") as refused:
        launch.launch([], ranks=1, nodes=SEVERAL)
    assert f"export {KEY}=" in refused.value.hint
