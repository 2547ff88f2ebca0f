from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    ("dataparallel_imbalance", "I train on three cards; GPU-0 always takes about 4 GB more memory than the others, why?"),
    ("dataparallel_imbalance", "torch: the logits are gathered on GPU 0 for the loss, its memory is full and the rest half empty"),
    ("extra_contexts_on_gpu0", "torchrun with 4 ranks: there are three additional processes of 500 MB each on GPU 0"),
    ("extra_contexts_on_gpu0", "pl.Trainer(strategy='ddp', devices=[2, 3]) starts processes on the unused GPUs too, each with a little memory"),
    ("extra_contexts_on_gpu0", "DDP: several processes sit on gpu 0, they take 3 GB of it and rank 0 ends with CUDA out of memory, sometimes"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_fills_the_first_gpu_is_named(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_one_process_for_each_gpu_is_not_dataparallel():
    report = report_of("DDP with torchrun: GPU 0 uses more memory than the others")
    assert "dataparallel_imbalance" not in [f.id for f in report.findings if f.severity != "info"]


IN_WORDS = [
    ("dataparallel_imbalance", "training on four cards needs much more memory on GPU#0 than the others"),
    ("dataparallel_imbalance", "it takes a lot of memory in GPU0 but much less in the others"),
    ("extra_contexts_on_gpu0", "with torchrun, when I resume from the .pt file, the memory of GPU0 is much higher than before"),
    ("extra_contexts_on_gpu0", "torch.load in each process restores to cuda:0: extra memory on cuda:0 in DDP training"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), IN_WORDS)
def test_the_fuller_first_gpu_is_understood_from_a_sentence(cause, text):
    assert first(text) == cause
