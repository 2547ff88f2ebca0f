import pytest
import torch

from gpudoc.errors import GpudocError
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
