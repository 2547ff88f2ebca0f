from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    ("dataparallel_imbalance", "With nn.DataParallel the first GPU uses 15 GB and the others 6 GB; it is slower than one card."),
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
