import pytest
import torch

from gpudoc.profile.model import Loader
from gpudoc.train.ranks.protocol import Alone
from gpudoc.tune.child.samples import collect_samples
from gpudoc.tune.child.scaling import RankStand, measure_legs
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import TrialRequest, Variant
from gpudoc.units import GIB
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload


@pytest.fixture
def legs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def measure(is_over=lambda: False, **changes):
        workload = load_workload(str(write_workload(tmp_path, **changes.pop("plant", {}))))
        request = TrialRequest(kind="scaling", batches=(8,), seconds_per_batch=0.2, **changes)
        stand = RankStand(
            workload=workload,
            samples=collect_samples(workload),
            trainee=Trainee(workload, Variant(), torch.device("cpu")),
            ranks=Alone(),
            request=request,
            emit=lambda event: None,
            is_over=is_over,
        )
        return measure_legs(stand)

    return measure


def test_one_rank_on_a_cpu_has_no_exchange_and_no_copy_to_leave_out(legs):
    found = legs()
    assert set(found) == {"computed", "small", "loaded"}
    assert all(len(blocks) >= 3 and min(blocks) > 0 for blocks in found.values())


def test_the_wait_for_data_is_in_the_loaded_leg_alone(legs):
    found = legs(plant={"data": {"sleep": 0.005}})
    # sleeping takes at least its time, so this holds on any machine
    assert min(found["loaded"]) > 8 * 0.005
    assert "computed" in found


def test_what_workers_had_ready_is_not_counted_as_speed(legs):
    found = legs(plant={"data": {"sleep": 0.004}}, feed=Loader(num_workers=1, prefetch_factor=8))
    assert sum(found["loaded"]) / len(found["loaded"]) > 0.8 * 8 * 0.004


def test_when_time_is_over_it_ends_with_what_it_has(legs):
    found = legs(is_over=lambda: True)
    assert len(found["loaded"]) == 1
    assert len(found["computed"]) == 2


def test_two_ranks_tell_one_set_of_legs_with_the_exchange_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    request = TrialRequest(kind="scaling", batches=(8,), ranks=2, seconds_per_batch=0.3)
    with Launcher(str(write_workload(tmp_path, net={"hidden": 2048, "width": 512}))) as launcher:
        trial = launcher.run(request, Where(device="cpu", limit_bytes=GIB, silence_s=60.0))
    assert trial.fits, trial
    assert set(trial.legs) == {"computed", "exchanged", "loaded"}
    assert len(trial.legs["computed"]) == len(trial.legs["exchanged"])
    assert trial.point(8).step_s == trial.legs["loaded"]
    assert type(trial).model_validate_json(trial.model_dump_json()) == trial
