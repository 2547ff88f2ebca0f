import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.train.step import precision
from gpudoc.train.step.precision import choose, has_native_bf16

CPU = torch.device("cpu")


@pytest.mark.parametrize("asked", ["bf16", "fp32"])
def test_what_is_asked_for_is_taken(asked):
    chosen = choose(asked, CPU)
    assert (chosen.name, chosen.needs_scaler) == (asked, False)


def test_auto_takes_bf16_only_where_it_is_native():
    chosen = choose("auto", CPU)
    assert chosen.name == ("bf16" if has_native_bf16(CPU) else "fp32")
    assert "bf16" in chosen.why


@pytest.mark.parametrize(
    ("device", "native", "name", "why"),
    [
        ("cuda", True, "bf16", "this CUDA computes bf16 natively"),
        ("cuda", False, "fp16", "fp16 with loss scaling"),
        ("cpu", False, "fp32", "this CPU has no native bf16"),
    ],
)
def test_without_native_bf16_a_gpu_takes_fp16_and_a_cpu_fp32(monkeypatch, device, native, name, why):
    monkeypatch.setattr(precision, "has_native_bf16", lambda device: native)
    chosen = choose("auto", torch.device(device))
    assert chosen.name == name
    assert why in chosen.why


def test_a_device_that_is_neither_is_not_said_to_have_bf16():
    assert not has_native_bf16(torch.device("meta"))


@pytest.mark.parametrize("asked", ["fp16", "fp8", ""])
def test_what_a_cpu_cannot_train_is_refused_with_what_it_can(asked):
    with pytest.raises(GpudocError) as caught:
        choose(asked, CPU)
    assert "bf16" in caught.value.hint


def test_the_forward_pass_computes_in_the_chosen_format():
    line = torch.nn.Linear(4, 4)
    with choose("bf16", CPU).autocast(CPU):
        assert line(torch.ones(2, 4)).dtype == torch.bfloat16
    with choose("fp32", CPU).autocast(CPU):
        assert line(torch.ones(2, 4)).dtype == torch.float32
    assert line.weight.dtype == torch.float32


def test_fp16_underflows_without_a_scaler():
    chosen = choose("fp16", torch.device("cuda"))
    assert chosen.needs_scaler
    assert chosen.dtype is torch.float16
