import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Gpu, Host, Machine
from gpudoc.profile.match import match
from gpudoc.profile.model import Hardware, Made, Profile, Script, ScriptLoader, Settings, WorkloadKey
from gpudoc.profile.store import save, user_folder
from gpudoc.script.remember import (
    file_digest,
    fingerprint,
    hardware_of,
    remembered,
    script_name,
    workload_of,
)

HERE = Hardware(device="cpu", name="A CPU", memory_bytes=8 << 30, torch="2.9.1", cpu_cores=8)
TUNED = ["python", "train.py", "--epochs", "3", "--width", "64"]


@pytest.fixture(autouse=True)
def empty_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDOC_PROFILE_DIR", str(tmp_path / "user"))


def keep(command, *, hardware=HERE, name="p.yaml", file=""):
    profile = Profile(
        made=Made(at="now", gpudoc="0.1.0", seconds=1, trials=1),
        hardware=hardware,
        workload=workload_of(command),
        settings=Settings(precision="fp32", micro_batch=48),
        script=Script(loaders=(ScriptLoader(at="train.py:7", role="training", batch_size=8),), file=file),
    )
    return save(profile, user_folder() / name)


@pytest.mark.parametrize(
    "other",
    [
        ["/opt/env/bin/python3.11", "/home/me/project/train.py", "--epochs", "3", "--width", "64"],
        ["python", "train.py", "--epochs=90", "--width", "64", "--output_dir", "/data/runs/7", "--seed", "1"],
        ["python", "train.py", "--width", "64"],
    ],
)
def test_a_command_is_the_same_wherever_it_lies_and_however_long_it_runs(other):
    keep(TUNED)
    found = remembered(other, HERE)
    assert found is not None
    assert found.profile.settings.micro_batch == 48
    assert "p.yaml" in found.sentence


@pytest.mark.parametrize(
    "other",
    [
        ["python", "train.py", "--epochs", "3", "--width", "128"],
        ["python", "other.py", "--epochs", "3", "--width", "64"],
        ["torchrun", "--nproc-per-node", "2", "train.py", "--width", "64"],
    ],
)
def test_another_command_finds_nothing(other):
    keep(TUNED)
    assert remembered(other, HERE) is None


def test_a_number_where_the_tuned_command_had_the_placeholder_is_the_same_command():
    keep(["python", "train.py", "--batch-size", "{batch}", "--width=64"])
    found = remembered(["python", "train.py", "--batch-size", "32", "--width=64"], HERE)
    assert found is not None
    assert found.batch_word == 3
    asked = remembered(["python", "train.py", "--batch-size", "{batch}", "--width=64"], HERE)
    assert asked is not None
    assert asked.batch_word == 3
    assert remembered(["python", "train.py", "--batch-size", "32", "--width=65"], HERE) is None


def test_a_command_without_the_placeholder_has_no_word_for_the_batch():
    keep(TUNED)
    assert remembered(TUNED, HERE).batch_word is None


def test_another_torch_is_a_miss_where_it_is_known_and_none_where_it_is_not():
    keep(TUNED)
    assert remembered(TUNED, HERE.model_copy(update={"torch": "2.10.0"})) is None
    assert remembered(TUNED, HERE.model_copy(update={"torch": ""})) is not None


def test_what_was_passed_over_is_named_with_its_reason():
    keep(TUNED, name="wide.yaml", hardware=HERE.model_copy(update={"memory_bytes": 64 << 30}))
    keep(TUNED, name="right.yaml")
    (user_folder() / "torn.yaml").write_text("schema: [")
    found = remembered(TUNED, HERE)
    assert found is not None
    assert found.path.name == "right.yaml"
    told = " | ".join(found.passed_over)
    assert "torn.yaml" in told or "wide.yaml" in told


def test_a_named_profile_of_another_command_is_refused_with_what_to_type():
    path = keep(TUNED)
    with pytest.raises(GpudocError, match="other arguments") as told:
        remembered(["python", "train.py", "--width", "1"], HERE, str(path))
    assert told.value.hint == "gpudoc tune -- python train.py --width 1"


def test_a_named_profile_of_a_config_is_refused():
    profile = Profile(
        hardware=HERE, workload=WorkloadKey(config="cfg", model="m"), settings=Settings(precision="fp32", micro_batch=1)
    )
    path = save(profile, user_folder() / "cfg.yaml")
    with pytest.raises(GpudocError, match="belongs to a config"):
        remembered(TUNED, HERE, str(path))


def test_a_script_that_changed_since_is_used_and_said(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("one\n")
    keep(TUNED, file=file_digest(TUNED))
    assert "changed" not in remembered(TUNED, HERE).sentence
    script.write_text("another\n")
    assert "changed since" in remembered(TUNED, HERE).sentence


def test_a_config_never_takes_the_profile_of_a_command():
    keep(TUNED)
    found = match(HERE, workload_of(TUNED))
    assert found is None or found.kind == "preset"


def test_the_fingerprint_holds_no_path():
    assert fingerprint(["python", "/home/anna/train.py", "--data=/mnt/anna/x"]) == fingerprint(
        ["python3", "train.py", "--data=x"]
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["torchrun", "--nproc-per-node", "2", "src/train.py"], "train.py"),
        (["python", "-m", "package.train"], "package.train"),
        (["/usr/bin/entry-point"], "entry-point"),
    ],
)
def test_a_script_is_called_what_a_person_calls_it(command, name):
    assert script_name(command) == name


def test_hardware_is_read_from_facts_without_torch():
    machine = Machine(
        host=Host(cpu_model="A CPU", cpus_usable=4.0, memory_total_bytes=8 << 30),
        gpus=(Gpu(index=0, name="NVIDIA T4", memory_total_bytes=16 << 30, capability=(7, 5)),),
    )
    on_cpu = hardware_of(machine, device="cpu", limit_bytes=2 << 30)
    assert (on_cpu.name, on_cpu.memory_bytes, on_cpu.shm_bytes) == ("A CPU", 2 << 30, None)
    on_gpu = hardware_of(machine, device="cuda:0", torch="2.9.1")
    assert (on_gpu.name, on_gpu.memory_bytes, on_gpu.capability) == ("NVIDIA T4", 16 << 30, (7, 5))
