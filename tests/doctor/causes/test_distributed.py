from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

TIMEOUT = (
    "[rank2]:[E ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)
CASES = [
    ("ddp_unused_parameters", "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."),
    ("ddp_uneven_inputs", "With DDP one rank has fewer batches than the others and the job hangs at the end of the epoch."),
    ("nccl_timeout_one_rank_busy", "Running tokenizer on dataset: 41%|####\n" + TIMEOUT),
    ("nccl_timeout_one_rank_busy", "only rank 0 saves the checkpoint, which takes 15 minutes\n" + TIMEOUT),
    ("nccl_p2p_hang", "Training on two GPUs hangs at the first all_reduce with 100% GPU utilisation; with NCCL_P2P_DISABLE=1 it runs."),
    ("p2p_unsupported_rtx40", 'NotImplementedError: Using RTX 3090 or 4000 series doesn\'t support faster communication broadband via P2P or IB. Please set `NCCL_P2P_DISABLE="1"`'),
    ("nccl_wrong_interface", "node1:88:88 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\nncclSystemError: connect failed"),
    ("nccl_wrong_interface", "NCCL WARN Bootstrap : no socket interface found"),
    ("nccl_network_unreachable", "NCCL WARN socketStartConnect: Connect to 10.0.0.4<43211> failed : Connection refused"),
    ("nccl_network_unreachable", "[c10d] The client socket has timed out after 60s while trying to connect to (10.1.2.3, 29500)."),
    ("port_in_use", "RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE, address already in use"),
    ("duplicate_gpu_ranks", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 81000"),
    ("nccl_shm_too_small", "Two cards in a docker image.\nRuntimeError: NCCL error in: init.cpp:33, unhandled system error"),
    ("nccl_shm_too_small", "torchrun --nproc_per_node 4 train.py\nRuntimeError: NCCL error: unhandled system error"),
    ("nccl_shm_too_small", "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab12 (size 4194660)"),
    ("nccl_timeout_one_rank_busy", "Four processes train, the validation runs only on the main process, and everybody else is stuck in dist.barrier() for ever"),
    ("nccl_network_unreachable", "NCCL_SOCKET_IFNAME=ens5 is set\nn1:7:9 [0] NCCL INFO NET : Using interface ens5:10.1.0.4<0>\nn1:7:9 [0] NCCL WARN Call to connect failed : Connection timed out"),
    ("nccl_wrong_interface", "n1:7:9 [0] NCCL INFO NET : Using interface lo:127.0.0.1<0>\nn1:7:9 [0] NCCL WARN Call to connect timeout : Connection refused"),
    ("ddp_uneven_inputs", "DDP hangs in all_reduce at the last step: rank 0 gets 7 shards and rank 1 gets 8, so the number of batches differs"),
    ("communication_bound", "DDP training on 4 GPUs is slower than on a single GPU, whatever the batch size"),
    ("extra_contexts_on_gpu0",
     "|    0   N/A  N/A      811      C   python     9120MiB |\n|    0   N/A  N/A      812      C   python      611MiB |\n"
     "|    0   N/A  N/A      813      C   python      611MiB |\n|    1   N/A  N/A      812      C   python     9100MiB |"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_ranks_say_names_the_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]
