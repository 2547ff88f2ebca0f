import pytest

from gpudoc.profile.match import differences, explain, interrupted, match, plain_name, ranks_hint
from gpudoc.profile.model import Hardware, Made, Profile, Settings, WorkloadKey
from gpudoc.profile.store import LOCAL_FOLDER, presets, save

GPU = Hardware(
    device="cuda",
    name="NVIDIA GeForce RTX 3090",
    capability=(8, 6),
    memory_bytes=24 << 30,
    torch="2.11.0+cu128",
    cuda="12.8",
    driver="580.65.06",
    cpu_cores=16,
    ram_bytes=64 << 30,
    shm_bytes=32 << 30,
    power_limit_w=350,
)
KEY = WorkloadKey(config="mine", model="m1", data="d1", optimizer="AdamW", inputs="float32[3, 8]", global_batch=64)

HARD = {
    "device": "cpu",
    "name": "NVIDIA A100",
    "torch": "2.12.0",
    "cuda": "13.0",
    "count": 2,
    "memory_bytes": 23 << 30,
}
SOFT = {"driver": "590.1", "cpu_cores": 8, "power_limit_w": 250, "ram_bytes": 32 << 30, "shm_bytes": 64 << 20}


def profile(hardware=GPU, workload=KEY, **changes):
    return Profile(
        made=Made(at="now", gpudoc="0.1.0", seconds=1, trials=1),
        hardware=hardware,
        workload=workload,
        settings=Settings(precision="bf16", micro_batch=96),
        **changes,
    )


@pytest.fixture(autouse=True)
def empty_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDOC_PROFILE_DIR", str(tmp_path / "user"))


def test_the_same_machine_and_workload_need_no_check():
    save(profile(), LOCAL_FOLDER / "p.yaml")
    found = match(GPU, KEY)
    assert (found.kind, found.check, found.profile.settings.micro_batch) == ("tuned", False, 96)
    assert "p.yaml" in found.sentence
    assert "torch 2.11.0+cu128" in found.sentence


@pytest.mark.parametrize("field", HARD)
def test_every_hard_field_of_the_hardware_is_a_miss(field):
    save(profile(), LOCAL_FOLDER / "p.yaml")
    here = GPU.model_copy(update={field: HARD[field]})
    found = match(here, KEY)
    assert found.kind == "preset"
    assert any("p.yaml: not used" in reason for reason in found.passed_over)


@pytest.mark.parametrize("field", ["model", "optimizer", "inputs"])
def test_every_hard_field_of_the_workload_is_a_miss(field):
    save(profile(), LOCAL_FOLDER / "p.yaml")
    assert match(GPU, KEY.model_copy(update={field: "other"})).kind == "preset"


@pytest.mark.parametrize("field", SOFT)
def test_every_soft_field_asks_for_a_check_and_is_named(field):
    save(profile(), LOCAL_FOLDER / "p.yaml")
    found = match(GPU.model_copy(update={field: SOFT[field]}), KEY)
    assert (found.kind, found.check) == ("tuned", True)
    assert "checked in the first steps" in found.sentence


def test_a_soft_field_that_one_side_does_not_know_is_no_difference():
    assert not differences(profile(), GPU.model_copy(update={"driver": None}), KEY)


def test_another_cpu_or_instruction_set_asks_for_a_check():
    there = GPU.model_copy(update={"device": "cpu", "name": "AMD EPYC", "instructions": "AVX512"})
    save(profile(hardware=there), LOCAL_FOLDER / "p.yaml")
    assert not match(there, KEY).check
    found = match(there.model_copy(update={"name": "Intel Xeon", "instructions": "AVX2"}), KEY)
    assert found.check
    assert "made on AMD EPYC, AVX512 with torch" in found.sentence
    assert "device name EPYC there, INTEL XEON here; instruction set AVX512 there, AVX2 here" in found.sentence
    assert not match(there.model_copy(update={"instructions": None}), KEY).check


def test_a_cpu_with_less_memory_is_a_miss_and_with_more_a_check():
    cpu = GPU.model_copy(update={"device": "cpu", "name": "EPYC"})
    save(profile(hardware=cpu), LOCAL_FOLDER / "p.yaml")
    assert match(cpu.model_copy(update={"memory_bytes": 12 << 30}), KEY).kind == "preset"
    assert match(cpu.model_copy(update={"memory_bytes": 48 << 30}), KEY).check


@pytest.mark.parametrize(
    ("memory", "stem"),
    [
        (6, "gpu-8gb"),
        (8, "gpu-8gb"),
        (12, "gpu-8gb"),
        (24, "gpu-24gb"),
        (40, "gpu-24gb"),
        (80, "gpu-80gb"),
        (192, "gpu-141gb"),
    ],
)
def test_without_a_profile_the_nearest_smaller_preset_starts(memory, stem):
    found = match(GPU.model_copy(update={"memory_bytes": (memory << 30) - (200 << 20)}), KEY)
    assert (found.kind, found.path.stem) == ("preset", stem)
    assert "gpudoc tune --model" in found.sentence
    assert "estimated" in found.sentence


def test_a_device_without_a_preset_has_no_match():
    assert match(Hardware(device="xpu"), KEY) is None


def test_a_bad_file_is_passed_over_with_its_reason():
    save(profile(), LOCAL_FOLDER / "a.yaml")
    (LOCAL_FOLDER / "z.yaml").write_text("{")
    found = match(GPU, KEY)
    assert found.path.name == "a.yaml"
    assert [reason for reason in found.passed_over if "z.yaml" in reason]


def test_the_way_a_vendor_writes_a_name_does_not_matter():
    assert plain_name("NVIDIA H100 80GB HBM3") == plain_name("Tesla H100-80GB-HBM3") == "H100 80GB HBM3"


def test_a_named_preset_has_no_differences():
    assert explain(next(iter(presets())).profile, GPU, KEY) == ()
    assert explain(profile(), GPU.model_copy(update={"count": 4}), KEY)


def test_a_profile_for_more_processes_says_how_it_would_be_used():
    """Batch and speed of several ranks are not those of one; but the profile is not lost."""
    two = profile(GPU.model_copy(update={"count": 2}))
    save(two, LOCAL_FOLDER / "two.yaml")
    found = match(GPU, KEY)
    assert found.kind == "preset"
    assert found.passed_over == ("two.yaml: not used: number of devices 2 there, 1 here; --gpus 2 would use it",)
    assert match(two.hardware, KEY).kind == "tuned"
    other = profile(GPU.model_copy(update={"count": 2, "torch": "2.12.0"}))
    assert ranks_hint(other, differences(other, GPU, KEY)) == ""


def test_a_profile_of_an_interrupted_search_says_so_when_it_is_used(tmp_path):
    cut = Made(at="now", gpudoc="0.1.0", seconds=1, trials=3, interrupted=True)
    save(profile().model_copy(update={"made": cut}), LOCAL_FOLDER / "cut.yaml")
    assert "Its search was interrupted after 3 trials" in match(GPU, KEY).sentence
    assert interrupted(profile()) == ""


def test_another_model_is_said_in_words_and_not_in_hashes():
    other = KEY.model_copy(update={"model": "9f86d081", "data": "60303ae2"})
    told = "; ".join(map(str, differences(profile(), GPU, other)))
    assert "made for a different model" in told
    assert "the data set is a different one" in told
    assert "9f86d081" not in told
    assert "60303ae2" not in told
