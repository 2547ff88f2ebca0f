"""What a job says of itself before its first step."""

from __future__ import annotations

from gpudoc.train.request import TrainRequest
from gpudoc.train.start.build import build
from gpudoc.train.stop import Stop
from tests.train.support import forget_limit, write_workload


def test_what_is_built_is_told_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    request = TrainRequest(
        model=str(write_workload(tmp_path)),
        profile="off",
        device="cpu",
        preflight=False,
        run_dir=tmp_path / "run",
        flags={"steps": 5},
    )
    building = build(request, Stop())
    try:
        while True:
            next(building)
    except StopIteration as end:
        job, lock = end.value
    finally:
        forget_limit()
    lock.close()
    told = job.started()
    assert (told.name, told.run_dir, told.device, told.world) == ("cfg", tmp_path / "run", "cpu", 1)
    assert (told.num_parameters, told.num_samples, told.steps_per_epoch) == (161, 96, 8)
    assert (told.step, told.end_step, told.resumed_from) == (0, 5, None)
