from tests.doctor.causes.judge import first_is, never

_LIGHTNING = "|  {action:60} | {mean:>10} | 400 | {total:>8} | {share:>6} |\n"


def _row(action: str, share: float) -> str:
    return _LIGHTNING.format(action=action, mean="0.5", total=f"{share * 4:.1f}", share=f"{share:.3f}")


def _calls(own: float, who: str) -> str:
    head = "       9120 function calls (9000 primitive calls) in 60.500 seconds\n\n"
    return head + "   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n" + (
        f"      200   {own:.3f}    0.010   {own + 1:.3f}    0.020 {who}\n"
    )  # fmt: skip


test_the_large_share_of_a_profile_is_the_cause = first_is([
    ("communication_bound", "This run has high time cost on communication. 38.2% of the step time is in communication."),
    ("launch_bound", "31.5 % of the total step time sampled is spent on 'Kernel Launch'. It could be due to CPU contention"),
    ("python_bound", "44.1 % of the total step time sampled is spent on 'All Others' time."),
    ("checkpoint_too_often", _row("[Callback]ModelCheckpoint{'every_n_train_steps': 5}.on_train_batch_end", 48.2)),
    ("logging_each_step", _row("[Callback]TQDMProgressBar.on_train_batch_end", 33.0)),
    ("pageable_copies", _row("[Strategy]SingleDeviceStrategy.batch_to_device", 29.9)),
    ("communication_bound", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)  0.00%  0.000us  0.00%  0.000us  2.101s  57.10%  2.101s  400"),
    ("communication_bound", " 54.3  2,101,000,112  400  5,252,500.3  ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ("communication_bound", "time (ms) | fwd_microstep: 50.1 | bwd_microstep: 210.4 | bwd_inner_microstep: 30.2 | bwd_allreduce_microstep: 179.9 | step_microstep: 9.3"),
    ("python_bound", _calls(40.0, "/home/me/project/targets.py:88(match_boxes)")),
    ("gpu_sync_each_step", _calls(40.0, "{method 'item' of 'torch._C.TensorBase' objects}")),
    ("dataloader_bottleneck", _calls(40.0, "{method 'acquire' of '_thread.lock' objects}")),
])  # fmt: skip
SMALL = [
    "4.1% of the step time is in communication.",
    "2.5 % of the total step time sampled is spent on 'Kernel Launch'.",
    _row("[Callback]ModelCheckpoint{'every_n_epochs': 1}.on_train_epoch_end", 1.2),
    _row("[Strategy]SingleDeviceStrategy.training_step", 88.0),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)  0.00%  0.000us  0.00%  0.000us  0.101s  3.10%  0.101s  400",
    "time (ms) | fwd: 6567.6 | bwd: 17950.3 | bwd_inner: 17711.1 | bwd_allreduce: 239.1 | step: 1139.2",
    _calls(2.0, "/home/me/project/targets.py:88(match_boxes)"),
    _calls(40.0, "{method 'run_backward' of 'torch._C._EngineBase' objects}"),
    _calls(40.0, "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py:459(_conv_forward)"),
]  # fmt: skip
CAUSES = ("communication_bound", "launch_bound", "checkpoint_too_often", "pageable_copies", "python_bound")

test_a_small_share_and_the_models_own_work_are_no_cause = never([(cause, text) for cause in CAUSES for text in SMALL])
