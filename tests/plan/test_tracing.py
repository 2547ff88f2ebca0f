"""Traced peaks against real runs, counted by the profiler; and what happens where tracing ends."""

import gc

import pytest
import torch
from torch import nn

from gpudoc.plan.tape import StepPhase, StorageKind
from gpudoc.plan.tracing import Recipe, UntraceableError, record, record_real
from tests.plan.measure import measured_peak
from tests.plan.zoo import recipes

# oneDNN's scratch inside a convolution is known by rule only
CONVOLUTIONAL = {"resnet": 0.1, "unet": 0.1, "vit": 0.1}
FP32, BF16 = recipes("fp32"), recipes("bf16")


@pytest.mark.parametrize("name", FP32)
def test_the_traced_peak_is_the_real_one_in_float32(name):
    real = measured_peak(FP32[name], 12)
    assert record(FP32[name], 12).peak_bytes() == pytest.approx(real, rel=CONVOLUTIONAL.get(name, 0.01))


# without AVX-512 oneDNN has no LSTM in bf16, and there is no real peak to compare with
_no_lstm = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU cannot run an LSTM in bf16"
)


@pytest.mark.parametrize("name", ["llama", pytest.param("lstm", marks=_no_lstm), "gan"])
def test_the_traced_peak_is_the_real_one_in_bfloat16(name):
    real = measured_peak(BF16[name], 12)
    assert record(BF16[name], 12).peak_bytes() == pytest.approx(real, rel=0.01)


@pytest.mark.parametrize("name", ["mlp", "bert", "moe"])
def test_without_kernel_scratch_the_two_agree_to_a_few_bytes(name):
    real = measured_peak(FP32[name], 5)
    assert abs(record(FP32[name], 5).peak_bytes() - real) <= 64


def test_a_trace_of_real_tensors_counts_the_same():
    assert record_real(FP32["gpt2"], 3).peak_bytes() == record(FP32["gpt2"], 3).peak_bytes()


def test_nothing_is_allocated():
    import resource

    huge = recipes("fp32")["gpt2"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tape = record(huge, 100_000)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert tape.peak_bytes() > 100 << 30
    assert grown < 1 << 30


@pytest.fixture(scope="module")
def gpt2():
    """Two steps of a transformer of eight samples; the tests only read what was recorded."""
    return record(FP32["gpt2"], 8)


def test_composition_names_every_kind(gpt2):
    kinds = {block.kind for block in gpt2.blocks}
    assert kinds == set(StorageKind)
    weights = sum(block.size_bytes for block in gpt2.blocks if block.kind is StorageKind.WEIGHTS)
    state = sum(block.size_bytes for block in gpt2.blocks if block.kind is StorageKind.OPTIMIZER)
    assert weights == 4 * gpt2.num_parameters
    assert state == pytest.approx(2 * weights, rel=0.01), "Adam keeps two numbers per parameter"


def test_activations_belong_to_the_module_that_made_them(gpt2):
    of_mlp = [
        block for block in gpt2.blocks if block.module == "blocks.1.mlp.0" and block.kind is StorageKind.ACTIVATIONS
    ]
    assert any(block.size_bytes == 8 * 64 * 512 * 4 for block in of_mlp)


def test_every_phase_is_seen():
    tape = record(FP32["mlp"], 4)
    assert {block.phase for block in tape.blocks} >= {
        StepPhase.BUILD,
        StepPhase.INPUTS,
        StepPhase.FORWARD,
        StepPhase.BACKWARD,
    }
    assert {"built", "step 1", "step 2"} <= set(tape.marks)


def test_the_random_state_and_the_garbage_collector_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    record(FP32["mlp"], 4)
    assert torch.equal(torch.rand(1), expected)
    assert gc.isenabled()


def linear_recipe(step, build=lambda: nn.Linear(4, 4)):
    return Recipe(build=build, batch=lambda n: torch.randn(n, 4), step=step)


def test_a_data_dependent_shape_is_named_with_its_place_in_the_users_code():
    def step(model, inputs):
        model(inputs[inputs.sum(1) > 0]).sum().backward()

    with pytest.raises(UntraceableError) as raised:
        record(linear_recipe(step), 4)
    assert "depends on the data" in raised.value.reason
    assert "test_tracing.py" in raised.value.place
    assert "in step" in raised.value.place


def test_an_operation_without_a_fake_implementation_is_named():
    library = torch.library.Library("plantest", "DEF")
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", lambda x: x.clone(), "CPU")

    def step(model, inputs):
        torch.ops.plantest.mystery(model(inputs))

    with pytest.raises(UntraceableError, match="mystery"):
        record(linear_recipe(step), 4)


def test_an_error_of_the_users_own_is_told_with_its_place():
    def step(model, inputs):
        raise KeyError("pixels")

    with pytest.raises(UntraceableError, match="KeyError") as raised:
        record(linear_recipe(step), 4)
    assert "in step" in raised.value.place


def test_reading_the_loss_is_assumed_and_noted():
    def step(model, inputs):
        loss = model(inputs).square().mean()
        loss.backward()
        if loss.item() > 1e9:
            raise RuntimeError("diverged")

    tape = record(linear_recipe(step), 4)
    assert len(tape.notes) == 1
    assert "0.0 assumed" in tape.notes[0].text
    assert "test_tracing.py" in tape.notes[0].place


def test_modules_may_be_cast_and_copied_while_they_are_built():
    import copy

    def build():
        model = nn.Linear(8, 8).to(torch.bfloat16)
        return [model, copy.deepcopy(model)]

    def step(models, inputs):
        models[0](inputs.bfloat16()).sum().backward()

    tape = record(Recipe(build=build, batch=lambda n: torch.randn(n, 8), step=step), 4)
    weights = [block.size_bytes for block in tape.blocks if block.kind is StorageKind.WEIGHTS]
    assert sorted(weights) == [16, 16, 128, 128]


def test_evaluation_runs_after_the_last_step():
    from dataclasses import replace

    recipe = replace(FP32["mlp"], evaluate=lambda state, batch: state[0](batch[0]))
    tape = record(recipe, 4)
    assert tape.marks["evaluated"] > tape.marks["step 2"]
    assert any(block.phase is StepPhase.EVALUATE for block in tape.blocks)


def test_rates_that_rise_block_by_block_are_read_as_they_are():
    found = []

    def build():
        rising = torch.linspace(0, 0.3, 4)
        found.append([rate.item() for rate in rising])
        found.append([rate.item() for rate in rising.mul_(2)])
        return nn.Linear(4, 4)

    def step(model, value):
        model(value).sum().backward()

    tape = record(Recipe(build=build, batch=lambda n: torch.randn(n, 4), step=step, like="cuda"), 2)
    assert found[0] == pytest.approx([0, 0.1, 0.2, 0.3])
    # what was changed since is not known any more
    assert found[1] == [0, 0, 0, 0]
    assert len(tape.notes) == 1
