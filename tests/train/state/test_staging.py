"""Copies on the host are copies: what training changes afterwards does not reach them."""

from __future__ import annotations

import torch

from gpudoc.train.state.staging import Staging

CPU = torch.device("cpu")


def test_a_copy_stays_when_its_source_changes():
    staging = Staging(CPU)
    source = torch.arange(6.0)
    copied = staging.take("weight", source)
    source.add_(1)
    assert copied.tolist() == [0, 1, 2, 3, 4, 5]


def test_on_a_cpu_nothing_is_on_its_way_and_nothing_is_kept():
    staging = Staging(CPU)
    first = staging.take("weight", torch.ones(4))
    assert staging.finish() is None
    assert staging.pinned_bytes == 0
    assert staging.take("weight", torch.ones(4)).data_ptr() != first.data_ptr()


def test_what_needs_gradients_is_copied_without_them():
    weight = torch.nn.Parameter(torch.ones(2))
    assert not Staging(CPU).take("weight", weight).requires_grad


def test_a_layout_is_kept_unless_a_contiguous_copy_is_asked_for():
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    staging = Staging(CPU)
    assert staging.take("a", image).stride() == image.stride()
    contiguous = staging.take("b", image, contiguous=True)
    assert contiguous.is_contiguous()
    assert torch.equal(contiguous, image)


def test_in_place_nothing_is_copied_on_a_cpu():
    staging = Staging(CPU)
    staging.in_place = True
    source = torch.ones(4)
    assert staging.take("weight", source).data_ptr() == source.data_ptr()
