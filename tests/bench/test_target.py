import pytest

from gpudoc.bench import target
from gpudoc.doctor.device import Choice
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.model import GpuProcess, Machine, TorchBuild
from tests.bench.builders import machine
from tests.machines import built


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def collect(quick=False, python=None):
        calls.append("quick" if quick else "with torch")
        return found["machine"]

    found = {"machine": Machine(pci=(), gpus=())}
    monkeypatch.setattr(target, "collect", collect)
    return found, calls


def test_torch_is_asked_only_when_a_gpu_makes_it_necessary(asked):
    found, calls = asked
    assert target.find_target("auto").said == "measuring the CPU: this machine has no GPU"
    assert calls == ["quick"]
    found["machine"] = machine()
    target.find_target("cpu")
    assert calls == ["quick", "quick"]
    target.find_target("auto")
    assert calls[2:] == ["quick", "with torch"]


def test_a_gpu_that_cannot_be_used_leaves_the_cpu_and_says_why(asked):
    found, _ = asked
    broken = TorchBuild(version="2.13.0+cpu", accelerator="cpu", is_available=False, device_count=0)
    found["machine"] = Machine(gpus=machine().gpus, pci=machine().pci, host=machine().host, torch=broken)
    chosen = target.find_target("auto")
    assert chosen.choice.name == "cpu"
    assert chosen.said.startswith("measuring the CPU, because the GPU cannot be used")
    assert "try: " in chosen.said
    with pytest.raises(GpudocError, match="cannot be used") as caught:
        target.find_target("cuda")
    assert caught.value.exit_code == ExitCode.BAD_ANSWER
    assert "--device cpu" in caught.value.hint


def test_a_device_that_is_none(asked):
    with pytest.raises(GpudocError, match="no such device"):
        target.find_target("tpu")


def test_beside_others_nothing_is_measured_unless_told_to():
    other = GpuProcess(pid=2**22 + 7, alive=True, name="python", sm_percent=90)
    busy = built.machine(built.gpu(0, processes=(other,)), built.gpu(1))
    on = target.BenchTarget(busy, Choice(device="cuda", index=0, why="asked for"))
    with pytest.raises(GpudocError, match="other processes compute on cuda:0: python") as caught:
        target.before_measuring(on, quick=True, shared=False)
    assert caught.value.exit_code == ExitCode.BAD_ANSWER
    (said,) = target.before_measuring(on, quick=True, shared=True)
    assert "valid only while they run" in said
    free = target.BenchTarget(busy, Choice(device="cuda", index=1, why="asked for"))
    # rows between GPUs use the other one as well
    said, lasts = target.before_measuring(free, quick=False, shared=False)
    assert said.startswith("! other processes compute on cuda:0: python")
    assert said.endswith("figures across several GPUs are valid only while they run")
    assert lasts.startswith("takes about 1 min 20 s")
    alone = target.BenchTarget(built.machine(built.gpu(0)), Choice(device="cuda", index=0, why="asked for"))
    assert target.before_measuring(alone, quick=True, shared=False) == []
    assert (
        target.before_measuring(target.BenchTarget(busy, Choice(device="cpu", why="asked")), quick=True, shared=False)
        == []
    )
