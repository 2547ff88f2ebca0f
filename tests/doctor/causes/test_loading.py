from tests.doctor.causes.judge import first, first_is, ids, never, verdict_is


def test_memory_that_the_host_kills_for_is_not_the_device_s():
    text = "Memory keeps growing while training, each step needs more memory, in the end the process is killed"
    assert first(text) in ("host_memory_leak", "host_oom_killed")


test_what_holds_the_loader_or_the_host_back_is_named = first_is([
    ("too_many_workers", "UserWarning: This DataLoader will create 24 worker processes in total. Our suggested max number of worker in current system is 4, which is smaller than"),
    ("dataloader_bottleneck", "\n".join(f"Epoch: [0][{i}0/500] Time 1.21 ( 1.30) Data 0.9{i} ( 0.95) Loss 4.1" for i in range(5))),
    ("worker_copy_on_write_growth", "RAM usage of the DataLoader workers grows during the epoch until the machine swaps; the dataset holds a list of 20 million dicts"),
    ("leak_graph_kept", "GPU memory increases every iteration; total_loss += loss"),
    ("oom_eval_without_no_grad", "in the validation phase my gpu gets more and more memory until it crashes"),
    ("leak_graph_kept", "memory of the GPU grows without end until OOM\n    total_energy += energy\n    energy.backward()\n    optimizer.step()"),
    ("leak_graph_kept", "GPU RAM usage slowly increases during each epoch of training, nvidia-smi shows 100 MB more every time"),
    ("leak_graph_kept", "in the training loop the GPU consumption keeps increasing until OOM, I print torch.cuda.memory_allocated()"),
    ("oom_variable_length_batch", "training ends with CUDA out of memory, at step 300 the gpu memory suddenly increases"),
    ("host_memory_leak", "during training the ram usage goes up constantly until the machine swaps"),
    ("too_many_workers", "torchrun --nproc_per_node=4 train.py --num_workers 16   # the node has 32 cpus and training is slow"),  # workers of all processes are counted against the cpus that are named
    ("too_many_workers", "Training is slow. The loader has num_workers=16, the machine has 8 cores"),
    ("leak_graph_kept", "The memory explodes in training because all losses are stored in a list"),  # losses that are stored explain memory that explodes
])  # fmt: skip
test_the_same_words_of_something_else_are_no_cause = never([
    ("too_many_workers", "torchrun --nproc_per_node=4 train.py --num_workers 4   # the node has 32 cpus and training is slow"),  # workers of all processes are counted against the cpus that are named
    ("too_many_workers", "Training is slow. The loader has num_workers=4, the machine has 8 cores"),
    ("leak_graph_kept", "Training: because of the memory of my card I cannot increase the batch size beyond 8, loss is fine"),  # a batch that cannot be increased is no growth
    ("too_few_workers", "tune.run('PPO', config={'num_workers': 1, 'num_gpus': 1}) in rllib is slow, training needs days"),  # the workers of rllib are no loader workers
])  # fmt: skip
test_nor_is_it_mentioned = never([
    ("workers_recreated_each_epoch", "training works, the time of each epoch is 44 s and the loss falls"),  # how long an epoch takes says nothing of its beginning
], seen=ids)  # fmt: skip
test_what_is_well_is_healthy = verdict_is(("healthy",), [
    "Epoch: [0][00/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.9\nEpoch: [0][10/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.8\nEpoch: [0][20/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.7\nEpoch: [0][30/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.6\nEpoch: [0][40/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.5\nEpoch: [0][50/500] Time 1.21 ( 1.30) Data 0.02 ( 0.03) Loss 4.4",  # a steady log with little waiting is healthy
])  # fmt: skip
