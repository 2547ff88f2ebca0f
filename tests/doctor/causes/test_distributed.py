from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

TIMEOUT = (
    "[rank2]:[E ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)
CASES = [
    ("nccl_timeout_one_rank_busy", "Running tokenizer on dataset: 41%|####\n" + TIMEOUT),
    ("nccl_timeout_one_rank_busy", "only rank 0 saves the checkpoint, which takes 15 minutes\n" + TIMEOUT),
    ("nccl_p2p_hang", "Training on two GPUs hangs at the first all_reduce with 100% GPU utilisation; with NCCL_P2P_DISABLE=1 it runs."),
    ("nccl_timeout_one_rank_busy", "Four processes train, the validation runs only on the main process, and everybody else is stuck in dist.barrier() for ever"),
    ("extra_contexts_on_gpu0",
     "|    0   N/A  N/A      811      C   python     9120MiB |\n|    0   N/A  N/A      812      C   python      611MiB |\n"
     "|    0   N/A  N/A      813      C   python      611MiB |\n|    1   N/A  N/A      812      C   python     9100MiB |"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_ranks_say_names_the_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]
