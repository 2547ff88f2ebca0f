from tests.doctor.causes.judge import first_is

TIMEOUT = "[rank2]:[E ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
test_what_ranks_say_names_the_cause = first_is([
    ("nccl_timeout_one_rank_busy", "Running tokenizer on dataset: 41%|####\n" + TIMEOUT),
    ("nccl_timeout_one_rank_busy", "only rank 0 saves the checkpoint, which takes 15 minutes\n" + TIMEOUT),
    ("nccl_p2p_hang", "Training on two GPUs hangs at the first all_reduce with 100% GPU utilisation; with NCCL_P2P_DISABLE=1 it runs."),
    ("nccl_timeout_one_rank_busy", "Four processes train, the validation runs only on the main process, and everybody else is stuck in dist.barrier() for ever"),
])  # fmt: skip
