import pytest
import torch
from torch import nn

from gpudoc.plan.scratch import NOTHING, cpu_convolution, cpu_matmul, cpu_rnn_layer
from gpudoc.plan.tracing import Recipe, record
from tests.plan.measure import measured_peak


def convolution_args(image, weight):
    return (image, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def test_a_convolution_reorders_input_weight_and_result():
    image, weight = torch.empty(4, 32, 16, 16), torch.empty(16, 32, 3, 3)
    out = torch.empty(4, 16, 16, 16)
    extra = cpu_convolution(convolution_args(image, weight), out)
    assert [block.size_bytes for block in extra.scratch] == [4 * (image.numel() + weight.numel())]


def test_an_input_of_few_channels_is_read_in_place():
    image, weight = torch.empty(4, 3, 16, 16), torch.empty(16, 3, 3, 3)
    out = torch.empty(4, 16, 16, 16)
    (block,) = cpu_convolution(convolution_args(image, weight), out).scratch
    assert block.size_bytes == 4 * out.numel()


def test_channels_last_and_float64_are_not_reordered():
    weight, out = torch.empty(16, 32, 3, 3), torch.empty(4, 16, 16, 16)
    image = torch.empty(4, 32, 16, 16).to(memory_format=torch.channels_last)
    assert cpu_convolution(convolution_args(image, weight), out) is NOTHING
    assert cpu_convolution(convolution_args(torch.empty(4, 32, 16, 16).double(), weight), out) is NOTHING


def test_the_rnn_workspace_is_what_onednn_takes():
    # the profiler saw 1,032,192 bytes for 16 steps, batch 8, 64 inputs, 128 units in float32 (torch 2.13, AVX-512)
    args = [torch.empty(16, 8, 64)] + [None] * 9 + [128] + [None] * 4 + [True]
    assert cpu_rnn_layer(args, ()).held == {3: 1_032_192}


def test_only_16_bit_products_pack_their_factors():
    left, right = torch.empty(256, 128), torch.empty(128, 512)
    assert cpu_matmul((left, right), None) is NOTHING
    (plain,) = cpu_matmul((left.bfloat16(), right.bfloat16()), None).scratch
    (transposed,) = cpu_matmul((torch.empty(128, 256).bfloat16().t(), right.bfloat16()), None).scratch
    assert 0 < plain.size_bytes < transposed.size_bytes < 4 << 20


@pytest.mark.parametrize("channels", [(16, 64), (3, 32)])
def test_a_convolutions_peak_is_met_within_ten_per_cent(channels):
    def step(model, image):
        model(image).square().mean().backward()

    recipe = Recipe(
        build=lambda: nn.Sequential(nn.Conv2d(*channels, 3, padding=1), nn.Conv2d(channels[1], 48, 3, padding=1)),
        batch=lambda n: torch.randn(n, channels[0], 24, 24),
        step=step,
    )
    assert record(recipe, 16).peak_bytes() == pytest.approx(measured_peak(recipe, 16), rel=0.1)
