"""What is said of ranks in one line."""

from tests.doctor.causes.judge import first_is, foremost, never, silent

LAUNCHED = "CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node={n} train.py\nNCCL error: invalid usage"
test_what_is_no_fault_names_nothing = silent([
    "model = dict(find_unused_parameters=True, type='X') gives 2 % less accuracy in training",
    "In DDP training every process is on its own GPU, gpu 1 is used at 99 %",
    "NCCL uses eth0 here and training is fine",
    "rank 0 finished loading, rank 1 finished loading, training goes on",
])  # fmt: skip
test_more_processes_than_visible_devices_are_counted = first_is([("duplicate_gpu_ranks", LAUNCHED.format(n=4))])
test_one_process_for_one_device_is_right = never([("duplicate_gpu_ranks", LAUNCHED.format(n=1))], seen=foremost)
