"""The loader of a run: how long its workers live."""

from __future__ import annotations

import pytest

from tests.train.support import train_here, write_workload

LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


@pytest.mark.parametrize("persistent", [True, False])
def test_workers_that_do_not_persist_begin_anew_with_each_epoch(tmp_path, persistent):
    """Each worker process writes its number; three epochs make one or three of them."""
    write_workload(tmp_path, epochs=3, log_every=1)
    module = tmp_path / "tiny_workload.py"
    spy = "        import os, pathlib; pathlib.Path('pids').mkdir(exist_ok=True)\n"
    spy += "        pathlib.Path('pids', str(os.getpid())).touch()\n        x = self.inputs[index]\n"
    module.write_text(module.read_text().replace("        x = self.inputs[index]\n", spy))
    line = (*LINE, "--num-workers", 1, "--set", f"persistent_workers={persistent}")
    assert train_here(tmp_path, *line) == 0
    workers = len(list((tmp_path / "pids").iterdir()))
    # the parent itself reads one sample for its shape
    assert workers == (2 if persistent else 4)
