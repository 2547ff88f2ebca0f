import dataclasses

import pytest

from gpudoc.doctor import spinning
from gpudoc.process.openmp import OpenMp
from gpudoc.profile import store
from gpudoc.profile.model import Hardware, Loader, LossDeviation, VariantTrial, WorkloadKey
from gpudoc.tune.findings import Findings
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.model.noise import Noise
from gpudoc.tune.record import Context, about_threads, make_profile
from gpudoc.tune.search.choose import BatchChoice
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest, Variant
from gpudoc.workload.config import load_config

DEFAULT = Trial(
    request=TrialRequest(kind="default", batches=(32,), feed=Loader()),
    end=End.FITS,
    points=(Point(batch=32, peak_bytes=400, step_s=(0.5,)),),
    seconds=3.0,
)
FAILED = Trial(request=TrialRequest(kind="fit", batches=(101,)), end=End.OOM_HOST, failed_batch=101, seconds=1.0)


@pytest.fixture
def context():
    return Context(
        config=load_config("quickstart"),
        hardware=Hardware(device="cpu", name="a CPU", memory_bytes=1 << 34, torch="2.13.0"),
        workload=WorkloadKey(config="quickstart", model="abc"),
        device="cpu",
        limit_bytes=1 << 30,
        user_limit_bytes=1 << 30,
        seconds=9.0,
    )


def found():
    line = MemoryLine(batch=100, peak_bytes=900, bytes_per_sample=9.0)
    largest = Largest(
        batch=100, cap=1000, limit_bytes=1 << 30, fails_at=101, fails_with=End.OOM_HOST, line=line, predicted=100
    )
    joint = DEFAULT.model_copy(
        update={"request": TrialRequest(kind="joint", batches=(16,)), "points": (Point(batch=16, step_s=(0.125,)),)}
    )
    return Findings(
        defaults=[DEFAULT],
        joints=[joint],
        largest=largest,
        choice=BatchChoice(16, 64, "micro_batch 16: because"),
        variant=Variant(precision="bf16"),
        feed=Loader(num_workers=2),
    )


def test_a_profile_holds_settings_evidence_and_reasons_and_can_be_read_back(context, tmp_path):
    profile = make_profile(context, found(), [DEFAULT, FAILED])
    assert profile.settings.micro_batch == 16
    assert profile.settings.accumulation == -(-context.config.config.train.global_batch // 16)
    assert profile.settings.loader.num_workers == 2
    assert profile.hardware.memory_bytes == 1 << 30
    evidence = profile.evidence
    assert (evidence.largest_batch, evidence.fastest_batch, evidence.speedup_over_default) == (100, 64, 2.0)
    assert evidence.memory_model.bytes_per_sample == 9.0
    assert [(t.kind, t.batch, t.fits, t.end) for t in evidence.trials] == [
        ("default", 32, True, "fits"),
        ("fit", 101, False, "oom_host"),
    ]
    assert profile.why[0] == "micro_batch 16: because"
    assert store.load(store.save(profile, tmp_path / "p.yaml")) == profile


def test_what_others_disturbed_is_in_the_profile_and_its_first_reason(context, tmp_path):
    busy = DEFAULT.model_copy(update={"measured": {"other_cpus": 1.25, "busy_share": 0.95}})
    profile = make_profile(context, found(), [busy, FAILED])
    assert (profile.evidence.disturbed_trials, profile.evidence.other_cpus) == (1, 1.25)
    assert profile.why[0].startswith("other processes kept up to 1.2 CPUs busy during 1 of 1 timings")
    assert store.load(store.save(profile, tmp_path / "p.yaml")) == profile
    assert make_profile(context, found(), [DEFAULT]).evidence.disturbed_trials is None


@pytest.mark.parametrize(("device", "named"), [("cpu", True), ("cuda", False)])
def test_threads_that_spin_beside_others_are_named_where_the_cpu_computes(context, device, named, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
    monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp("libgomp"))
    busy = DEFAULT.model_copy(update={"measured": {"other_cpus": 1.25, "busy_share": 0.95}})
    why = make_profile(dataclasses.replace(context, device=device), found(), [busy]).why
    assert [line for line in why if line.endswith("export OMP_WAIT_POLICY=passive")] == list(why[1:2]) * named


def test_threads_that_were_tried_asleep_are_no_advice_any_more(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
    monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp("libgomp"))
    row = VariantTrial(name="asleep", changes={"wait_policy": "passive"}, times=0.9, why="asleep: not used")
    assert about_threads("cpu", Noise(1, 1, 1.25)) != []
    assert about_threads("cpu", Noise(1, 1, 1.25), [row]) == []


def test_reasons_and_the_form_of_the_optimizer_are_in_the_profile(context):
    known = found()
    known.variant = Variant(activation_checkpointing=True, fused=False)
    known.reasons = {"activation_checkpointing": "activation_checkpointing on: because"}
    profile = make_profile(context, known, [DEFAULT])
    assert (profile.settings.activation_checkpointing, profile.settings.fused) == (True, False)
    assert "activation_checkpointing on: because" in profile.why


def test_every_lever_that_was_tried_is_evidence_with_its_losses_and_a_reason(context, tmp_path):
    known = found()
    losses = LossDeviation(steps=5, difference=0.003, bound=0.02)
    known.tried = [
        VariantTrial(name="bf16", changes={"precision": "bf16"}, times=1.8, losses=losses, kept=True, why="bf16: kept"),
        VariantTrial(name="torch.compile", changes={"compile": True}, why="torch.compile: rejected, no compiler"),
    ]
    profile = make_profile(context, known, [DEFAULT])
    assert [row["name"] for row in profile.document()["evidence"]["variants"]] == ["bf16", "torch.compile"]
    assert profile.document()["evidence"]["variants"][0]["losses"] == {"steps": 5, "difference": 0.003, "bound": 0.02}
    assert {"bf16: kept", "torch.compile: rejected, no compiler"} <= set(profile.why)
    assert store.load(store.save(profile, tmp_path / "p.yaml")) == profile


def test_every_lever_of_the_choice_is_a_setting_of_the_profile(context):
    known = found()
    known.variant = Variant(
        compile=True, compile_mode="blocks", foreach=True, matmul_precision="medium", cudnn_benchmark=True
    )
    settings = make_profile(context, known, [DEFAULT]).settings
    assert Variant.model_validate({name: getattr(settings, name) for name in Variant.model_fields}) == known.variant


def test_an_interrupted_search_gives_the_default_and_says_that_it_was(context):
    profile = make_profile(dataclasses.replace(context, interrupted=True), Findings(defaults=[DEFAULT]), [DEFAULT])
    assert profile.document()["made"]["interrupted"] is True
    assert "interrupted" not in make_profile(context, Findings(defaults=[DEFAULT]), [DEFAULT]).document()["made"]
    assert (profile.settings.micro_batch, profile.settings.precision) == (32, "fp32")
    assert profile.evidence.speedup_over_default is None
