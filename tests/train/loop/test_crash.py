"""A sharded rank that runs out of memory: all start again from the checkpoint with half the micro batch."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from tests.train.ranks.test_distributed import torchrun
from tests.train.start.test_place import CONFIG, MODULE
from tests.train.support import train_here

RUN = """
from gpudoc.train.ranks import fsdp
from gpudoc.train.request import TrainRequest
from gpudoc.train.run import run
from gpudoc.train.start.place import as_rank
fsdp.must_shard = lambda *_, **__: True
request = TrainRequest(model=str(out / "c.yaml"), profile="off", device="cpu", run_dir=out / "run", resume=RESUME)
sys.exit(as_rank(lambda: [event for event in run(request)][-1].exit_code))
"""


@pytest.mark.slow
def test_ranks_start_again_with_half_the_micro_batch(tmp_path):
    """Rank 1 says in its eighth forward that memory ran out, once; rank 0 waits in a collective at that moment."""
    once = 'os.environ.get("RANK") == "1"'
    (tmp_path / "ranked.py").write_text(
        MODULE.replace(once, f'{once} and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"')
    )
    config = CONFIG.replace("lr: 0.05", "lr: 0.01").format(sleep=0.0, oom_at=8, raise_at=-1, most=99)
    (tmp_path / "c.yaml").write_text(config)
    assert train_here(tmp_path, "--model", "c.yaml", "--profile", "off", "--run-dir", "alone") == 0
    done = torchrun(
        tmp_path,
        RUN.replace("RESUME", '"never"'),
        "--max-restarts=2",
        GPUDOC_EXIT_FILE=str(tmp_path / "exit"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (tmp_path / "exit").exists(), done.stderr[-3000:]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    # the newest that was on the disk when the ranks ended: one that is due while another is written comes a step later
    assert summary["resumed_from"] in {f"step-{step}" for step in range(2, 8)}
    assert [(row["rescue"]["from_batch"], row["rescue"]["to_batch"]) for row in summary["rescues"]] == [(5, 2)]
    assert not (tmp_path / "run" / "smaller-batch.json").exists()
    first, second = (
        load_file(tmp_path / run / "checkpoints" / "step-12" / "model.safetensors") for run in ("alone", "run")
    )
    assert all((first[name] - second[name]).abs().max() < 1e-5 for name in first)
