"""The choice of a loader: against a machine that obeys the queue model, and on real processes."""

from __future__ import annotations

import random
import textwrap
import time

import pytest

from gpudoc.errors import GpudocError
from gpudoc.progress import SILENT
from gpudoc.tune.loader.messages import LoaderRun, Open
from gpudoc.tune.loader.search import MOST_SETTINGS, Search, search_loader, tune_loader
from gpudoc.tune.loader.session import MeasurementError
from gpudoc.tune.model.loader import (
    LoaderBounds,
    LoaderSetting,
    limit_broken,
    predict_period,
    ram_needed_bytes,
)
from gpudoc.tune.trial.messages import Variant
from gpudoc.workload.config import load_config
from tests.tune.model.test_loader import MIB, costs


class Modelled:
    """A machine that behaves as `truth` says, with noise and now and then a burst that spoils one stretch."""

    def __init__(self, truth, cpus, *, noise=0.01, bursts=0.0, fails=(), unpinned=1.0):
        self.truth, self.cpus, self.noise, self.bursts = truth, cpus, noise, bursts
        self.fails, self.unpinned = fails, unpinned
        self.draw = random.Random(3)
        self.asked: list[LoaderSetting] = []

    def period(self, setting):
        slower = 1.0 if setting.pin_memory else self.unpinned
        return predict_period(self.truth, setting, self.cpus) * slower

    def run(self, setting, *, seconds, period_s):
        self.asked.append(setting)
        if setting.num_workers in self.fails:
            raise MeasurementError("DataLoader worker (pid 7) is killed by signal: Bus error.")
        period = self.period(setting) * (1 + self.draw.uniform(0, self.noise))
        if self.draw.random() < self.bursts:
            period *= 1.36
        return LoaderRun(step_s=period, steps=50, wait_share=0.1, start_s=0.3 + period, restart_s=0.01 + period)


def search(machine, *, guessed=None, bounds=None, per_epoch=1000, pin_memory=False, started=None):
    state = Search(
        measures=machine,
        costs=guessed or machine.truth,
        bounds=bounds or LoaderBounds(cpus=machine.cpus),
        batches_per_epoch=per_epoch,
        persistent=True,
        stretch_s=1.0,
        progress=SILENT,
        started=time.monotonic() if started is None else started,
    )
    return search_loader(state, samples_per_batch=32, pin_memory=pin_memory)


WORLDS = {
    "cheap": costs(batch_s=(0.0004,) * 50, worker_cpu_s=0.0004),
    "decode": costs(),
    "sleep": costs(worker_cpu_s=0.002),
    "large": costs(main_s=0.015, batch_s=(0.03,) * 50, worker_cpu_s=0.03),
    "jitter": costs(batch_s=(0.03,) * 45 + (0.5,) * 5, worker_cpu_s=0.001),
}


@pytest.mark.parametrize("cpus", [2, 8, 32])
@pytest.mark.parametrize("world", WORLDS)
def test_the_choice_is_near_the_best_of_the_grid_in_four_settings(world, cpus):
    machine = Modelled(WORLDS[world], cpus, bursts=0.15)
    choice = search(machine)
    chosen = LoaderSetting(num_workers=choice.num_workers, prefetch_factor=choice.prefetch_factor)
    grid = [LoaderSetting(num_workers=w, prefetch_factor=p) for w in range(17) for p in (1, 2, 4, 8)]
    assert machine.period(chosen) <= min(machine.period(s) for s in grid) / 0.97
    assert len(set(machine.asked)) <= MOST_SETTINGS
    assert len(choice.trials) <= MOST_SETTINGS


class Hanging(Modelled):
    """Does not answer with `from_workers` or more."""

    def __init__(self, *arguments, from_workers, **changes):
        super().__init__(*arguments, **changes)
        self.from_workers = from_workers

    def run(self, setting, **asked):
        if setting.num_workers >= self.from_workers:
            self.asked.append(setting)
            raise MeasurementError("no answer within 20 s", hangs=True)
        return super().run(setting, **asked)


@pytest.mark.parametrize("from_workers", [2, 4, 8, 16])
def test_after_a_hang_half_as_many_workers_are_tried_and_never_as_many_again(from_workers):
    machine = Hanging(WORLDS["sleep"], 32, from_workers=from_workers)
    choice = search(machine)
    hung = [setting.num_workers for setting in machine.asked if setting.num_workers >= from_workers]
    assert hung == sorted(set(hung), reverse=True)
    assert 0 < choice.num_workers < from_workers


def test_without_time_for_one_setting_the_loader_is_not_said_to_fail():
    class Late(Modelled):
        def run(self, setting, **_):
            raise MeasurementError("no time was left", is_late=True)

    with pytest.raises(MeasurementError, match="no time for any setting") as caught:
        search(Late(WORLDS["sleep"], 32))
    assert caught.value.is_late


def test_no_workers_are_no_choice_where_the_time_reached_for_no_others():
    """What a step without workers takes may be known before the search."""

    class Late(Modelled):
        def run(self, setting, **asked):
            if setting.num_workers:
                raise MeasurementError("no time was left", is_late=True)
            return super().run(setting, **asked)

    with pytest.raises(MeasurementError, match="no time for any setting with workers") as caught:
        search(Late(WORLDS["sleep"], 32))
    assert caught.value.is_late


def test_a_wrong_prediction_is_corrected_upwards():
    """Workers that turn out twice as slow as one alone was: the fourth setting goes where the step still waits."""
    machine = Modelled(costs(batch_s=(0.16,) * 50), 32)
    choice = search(machine, guessed=costs())
    assert choice.num_workers == 8


def test_two_counts_that_are_as_fast_and_wait_lead_upwards_whichever_was_the_luckier(monkeypatch):
    """Four workers should feed the step and do not; three were 1 % faster by chance."""
    machine = Modelled(costs(batch_s=(0.04,) * 50, worker_cpu_s=0.0, step_s=0.011), 32)
    took = {0: 0.051, 3: 0.0129, 4: 0.01303, 6: 0.0116}
    monkeypatch.setattr(machine, "period", lambda setting: took.get(setting.num_workers, 0.02))
    machine.noise = 0.0
    assert search(machine).num_workers == 6


def test_a_wrong_prediction_is_corrected_downwards():
    machine = Modelled(costs(batch_s=(0.04,) * 50, worker_cpu_s=0.04), 32)
    choice = search(machine, guessed=costs())
    assert choice.num_workers < 4


def test_a_cheap_data_set_gets_no_workers_and_no_other_run():
    machine = Modelled(WORLDS["cheap"], 8)
    machine.truth = costs(batch_s=(0.0001,) * 50, worker_cpu_s=0.0001)
    choice = search(machine)
    assert choice.num_workers == 0
    assert not choice.persistent_workers
    assert {s.num_workers for s in machine.asked} == {0}


def test_a_cpu_that_cannot_feed_is_told_by_its_factor():
    choice = search(Modelled(costs(), 2))
    assert choice.missing_factor == pytest.approx(0.0495 / 0.02, rel=0.1)
    assert any("cannot feed" in reason for reason in choice.reasons)


def test_a_cap_on_workers_is_not_taken_for_a_lack_of_cpu():
    choice = search(Modelled(costs(batch_s=(2.0,) * 50, worker_cpu_s=0.001), 2))
    assert choice.num_workers == 16
    assert choice.missing_factor is None
    assert any("cap of 16 workers" in reason for reason in choice.reasons)


def test_memory_is_never_exceeded():
    bounds = LoaderBounds(cpus=32, ram_bytes=90 * MIB, shm_bytes=40 * MIB)
    machine = Modelled(costs(), 32)
    choice = search(machine, bounds=bounds)
    assert all(limit_broken(s, machine.truth, bounds) is None for s in machine.asked)
    assert max(ram_needed_bytes(s, machine.truth) for s in machine.asked) <= bounds.ram_bytes
    assert choice.num_workers > 0


def test_a_setting_that_dies_loses_to_one_that_runs():
    choice = search(Modelled(costs(), 32, fails=(4, 5, 6)))
    assert choice.num_workers in (0, 1, 2, 3)
    assert any("Bus error" in trial.failure for trial in choice.trials)


def test_nothing_that_runs_is_an_error_with_the_failures():
    with pytest.raises(GpudocError) as caught:
        search(Modelled(costs(), 32, fails=range(40)))
    assert "Bus error" in caught.value.hint


@pytest.mark.parametrize(("unpinned", "pinned"), [(1.10, True), (0.9, False)])
def test_pinned_memory_is_compared_on_a_gpu(unpinned, pinned):
    machine = Modelled(costs(), 32, unpinned=unpinned)
    choice = search(machine, pin_memory=True)
    assert {s.pin_memory for s in machine.asked} == {True, False}
    assert choice.pin_memory is pinned


def test_settings_that_do_not_fit_in_the_time_are_left_out_and_named():
    """A step of 4 s and 12 s of time: the first setting runs whatever it costs, and nothing else is begun."""
    machine = Modelled(costs(batch_s=(8.0,) * 50, worker_cpu_s=0.01, step_s=4.0), 32)
    choice = search(machine, bounds=LoaderBounds(cpus=32, seconds=12))
    assert machine.asked == [LoaderSetting(num_workers=2)]
    assert choice.num_workers == 2
    assert [trial.setting for trial in choice.trials] == machine.asked
    assert choice.missing_factor is None
    assert any(reason.startswith("not tried for lack of time") for reason in choice.reasons)


def test_a_late_search_still_compares_the_prediction_with_no_workers():
    """All the time went into starting the process: two short stretches are run all the same, and no more."""
    machine = Modelled(costs(worker_cpu_s=0.002), 2)
    choice = search(machine, bounds=LoaderBounds(cpus=2, seconds=6), started=time.monotonic() - 60)
    assert [setting.num_workers for setting in machine.asked] == [4, 0]
    assert choice.num_workers == 4
    assert all(trial.runs for trial in choice.trials)
    assert not any("cannot feed" in reason for reason in choice.reasons)


def test_the_start_of_a_short_epoch_counts():
    """Workers that take 0.3 s to start pay over a thousand batches and not over two."""
    machine = Modelled(costs(batch_s=(0.004,) * 50, worker_cpu_s=0.004), 8)
    state = {
        "measures": machine,
        "costs": machine.truth,
        "bounds": LoaderBounds(cpus=8),
        "stretch_s": 1.0,
        "progress": SILENT,
    }
    long = Search(**state, batches_per_epoch=1000, persistent=False)
    short = Search(**state, batches_per_epoch=2, persistent=False)
    assert search_loader(long, samples_per_batch=32, pin_memory=False).num_workers > 0
    assert search_loader(short, samples_per_batch=32, pin_memory=False).num_workers == 0


@pytest.mark.slow
def test_a_sleepy_data_set_gets_as_many_workers_as_it_needs(tmp_path):
    """Real processes: 16 samples of 3 ms against a step of about 10 ms need several workers on any machine."""
    (tmp_path / "sleepy.py").write_text(
        textwrap.dedent("""
        import time, torch
        class Sleepy(torch.utils.data.Dataset):
            def __len__(self): return 600
            def __getitem__(self, i):
                time.sleep(0.003)
                return torch.ones(4), torch.tensor(1.0)
        class Slow(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.line = torch.nn.Linear(4, 1)
            def forward(self, x):
                time.sleep(0.010)
                return self.line(x).flatten()
        """)
    )
    config = tmp_path / "sleepy.yaml"
    config.write_text(
        'model: {target: "sleepy:Slow"}\ndata: {target: "sleepy:Sleepy"}\nloss: {target: "torch.nn:MSELoss"}\n'
    )
    asked = Open(loaded=load_config(str(config)), batch_size=16, device="cpu", variant=Variant())
    choice = tune_loader(asked, bounds=LoaderBounds(cpus=2, seconds=8))
    assert choice.num_workers >= 2
    alone = next(trial for trial in choice.trials if trial.setting.num_workers == 0)
    assert choice.samples_per_s > 2 * 16 / alone.period_s(600 // 16, persistent=False)
    assert not choice.pin_memory
    assert len(choice.trials) <= MOST_SETTINGS
