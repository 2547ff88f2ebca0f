from dataclasses import replace

import pytest

from gpudoc.errors import GpudocError
from gpudoc.profile import store
from gpudoc.profile.model import Hardware, Loader, Made, Profile, ProfileEvidence, ProfileTrial, Settings, WorkloadKey
from gpudoc.train.settings import TrainSettings as RunSettings
from gpudoc.train.start.profiles import choose, lasting
from tests.train.support import summary, train_here, write_workload

HERE = Hardware(device="cpu", name="EPYC", memory_bytes=8 << 30, torch="2.13.0+cpu", cpu_cores=2)
KEY = WorkloadKey(config="mine", model="m1", optimizer="AdamW")


def tuned(**changes):
    return Profile(
        made=Made(at="now", gpudoc="0.1.0", seconds=1, trials=2),
        hardware=HERE.model_copy(update=changes),
        workload=KEY,
        settings=Settings(precision="fp32", micro_batch=24),
    )


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDOC_PROFILE_DIR", str(tmp_path / "user"))


def test_how_long_a_run_takes_is_said_at_the_pace_that_was_measured():
    settings = RunSettings(micro_batch=24, global_batch=48, steps=1000, num_workers=2)
    # a lever that was tried and not kept was faster with data that was ready
    trials = (ProfileTrial(kind="variant", batch=24, fits=True, samples_per_s=1000.0),)
    fed = tuned().settings.model_copy(update={"loader": Loader(num_workers=2)})
    evidence = ProfileEvidence(trials=trials, samples_per_s=80.0)
    known = tuned().model_copy(update={"evidence": evidence, "settings": fed})
    assert lasting(known, settings, 1, on_gpu=False).startswith("all its steps take about 10 min 00 s, at")
    assert "5 min 00 s, 0.17 GPU-hours" in lasting(known, settings, 2, on_gpu=True)
    # it was measured with two ranks, and 80 samples/s are those of both
    both = known.model_copy(update={"hardware": known.hardware.model_copy(update={"count": 2})})
    assert "10 min 00 s, 0.33 GPU-hours" in lasting(both, settings, 2, on_gpu=True)
    # the same speed does not hold for other settings
    assert lasting(known, replace(settings, num_workers=0), 1, on_gpu=True) == ""
    assert lasting(tuned(), settings, 1, on_gpu=True) == lasting(None, settings, 1, on_gpu=True) == ""


def test_off_is_no_profile():
    assert choose("off", HERE, KEY).profile is None


def test_auto_takes_the_tuned_profile_and_says_so(tmp_path):
    store.save(tuned(), tmp_path / "user" / "p.yaml")
    chosen = choose("auto", HERE, KEY)
    assert (chosen.kind, chosen.profile.settings.micro_batch) == ("tuned", 24)
    assert "p.yaml" in chosen.sentence


def test_auto_without_one_starts_from_a_preset():
    assert choose("auto", HERE, KEY).kind == "preset"


def test_a_named_profile_for_something_else_is_refused_with_the_difference(tmp_path):
    path = store.save(tuned(torch="2.6.0"), tmp_path / "p.yaml")
    with pytest.raises(GpudocError, match=r"torch 2\.6\.0 there, 2\.13\.0\+cpu here") as caught:
        choose(str(path), HERE, KEY)
    assert "gpudoc tune" in caught.value.hint


def test_a_named_profile_with_a_soft_difference_is_used_and_the_difference_named(tmp_path):
    path = store.save(tuned(cpu_cores=16), tmp_path / "p.yaml")
    chosen = choose(str(path), HERE, KEY)
    assert chosen.kind == "named"
    assert "CPU cores 16 there, 2 here" in chosen.sentence


def test_a_run_keeps_the_profile_it_used(tmp_path):
    write_workload(tmp_path)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--steps", "2", "--batch-size", "5") == 0
    kept = store.load(tmp_path / "runs" / "cfg" / "profile.yaml")
    assert kept.settings.micro_batch == 5
    assert kept.workload.global_batch == 12
    assert summary(tmp_path / "runs" / "cfg")["settings"]["micro_batch"]["from"] == "flag"
