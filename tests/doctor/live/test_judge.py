from gpudoc.doctor.live.judge import clear_cause, is_empty, judge, judge_end
from gpudoc.facts.live.job import CommandOutcome
from gpudoc.facts.process import Limits
from tests.facts.live.made import track, watch, worker

FAILED = (
    "Traceback (most recent call last):\n"
    '  File "t.py", line 4, in <module>\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.10 GiB is free. Process 1 has 22.50 GiB memory in use. Of the allocated memory 22.00 GiB is "
    "allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
)


def end(code=0, number=None, log="", interrupted=False):
    return CommandOutcome(exit_code=code, signal=number, log=log, watch=None, seconds=3.0, interrupted=interrupted)


def test_the_report_of_a_watch_comes_from_the_process():
    report = judge(watch({1: "wait*80 backward*20", 2: "w_fetch*100"}, [track(cpu_s=4), worker(2, cpu_s=19)]))
    assert report.source == "process"
    assert report.findings[0].id == "too_few_workers"
    assert report.findings[0].why
    assert report.crashed == ()


def test_a_cause_is_clear_where_it_costs_much_and_a_healthy_job_has_none():
    crowded, workers = [track(cpu_s=4), worker(2, cpu_s=19)], {2: "w_fetch*100"}
    assert clear_cause(watch({1: "wait*80 backward*20", **workers}, crowded)) == "too_few_workers"
    assert clear_cause(watch({1: "wait*80 backward*20", **workers}, crowded), ignore=("too_few_workers",)) == ""
    slight = watch({1: "wait*2 backward*8 " * 10, **workers}, crowded)
    assert [(found.id, found.confidence < 0.9) for found in judge(slight).findings] == [("too_few_workers", True)]
    assert clear_cause(slight) == ""
    still = watch({1: "backward*100"}, [track(cpu_s=0)])
    assert judge(still).findings[0].id == "job_hung"
    assert clear_cause(still) == ""
    healthy = watch({1: "forward*4 backward*5 optimizer*1 " * 10}, [track(cpu_s=20)])
    assert judge(healthy).findings[0].id == "compute_bound"
    assert clear_cause(healthy) == ""


def test_what_follows_from_a_cause_stands_under_it():
    limits = Limits(cpus_online=8, cpus_affinity=8, cpu_quota_cores=2.0, throttled_periods=160, periods=200)
    report = judge(
        watch({1: "wait*6 backward*4 " * 10, 2: "w_fetch*100"}, [track(cpu_s=20), worker(2, cpu_s=20)], limits=limits)
    )
    assert [finding.id for finding in report.findings] == ["cgroup_cpu_limit"]
    assert report.findings[0].explains == ("60 % of the time training waits for data, though the workers are not busy",)


def test_a_cause_can_be_left_out():
    report = judge(watch({1: "python*80 backward*20"}), ignore=("python_bound",))
    assert report.findings == ()


def test_a_command_that_failed_is_judged_by_its_log():
    report = judge_end(None, end(code=1, log=FAILED))
    assert report.source == "process"
    assert report.findings[0].id.startswith("oom")
    assert report.verdict == "broken"


def test_a_command_that_went_well_keeps_the_report_of_the_watch():
    watched = judge(watch({1: "backward*100"}))
    assert judge_end(watched, end()) is watched


def test_a_command_too_short_to_watch_is_unknown_and_says_so():
    report = judge_end(None, end())
    assert report.verdict == "unknown"
    assert "before a training step" in report.unexplained[0].value


def test_a_failed_command_that_wrote_nothing_is_unknown():
    report = judge_end(None, end(code=None, number=15))
    assert report.verdict == "unknown"
    assert "signal 15" in report.unexplained[0].value


def test_a_killed_command_is_judged_as_the_shell_would_tell_it():
    report = judge_end(None, end(code=None, number=9, log="step 100 loss 2.3\n"))
    assert report.verdict in ("broken", "unknown")
    assert [f.id for f in report.findings][:1] == ["host_oom_killed"]


def test_a_command_that_the_user_interrupted_did_not_fail():
    watched = judge(watch({1: "backward*100"}))
    assert judge_end(watched, end(code=1, log="KeyboardInterrupt", interrupted=True)) is watched
    assert "before a training step" in judge_end(None, end(code=1, interrupted=True)).unexplained[0].value


def test_a_report_of_nothing_is_known_as_such():
    assert is_empty(judge_end(None, end()))
    assert not is_empty(judge(watch({1: "backward*100"})))
    assert not is_empty(judge_end(None, end(code=1, log=FAILED)))


def test_a_job_that_only_starts_up_is_not_called_healthy():
    works = [track(main_cpu_s=19.0, cpu_s=19.0, cpu=tuple((i / 2, i / 2) for i in range(41)))]
    report = judge(watch({1: "import*100"}, works))
    assert report.verdict == "unknown"
    assert "is not training yet" in report.unexplained[0].value
    assert judge(watch({1: "import*10 backward*90"}, works)).verdict == "healthy"


SPINS = {1: "python*80 backward*20"}


def test_a_loss_that_is_nan_stands_before_what_is_slow():
    said = "step 1 loss 2.3\nstep 2 loss 2.4\nstep 3 loss nan\nstep 4 loss nan\n"
    assert [found.id for found in judge(watch(SPINS)).findings] == ["python_bound"]
    report = judge(watch(SPINS, log=said))
    assert [found.id for found in report.findings] == ["loss_nan_sudden", "python_bound"]
    assert report.verdict == "broken"
    assert [found.id for found in judge(watch(SPINS, log=said), ignore=("loss_nan",)).findings] == ["python_bound"]


def test_steps_with_nan_behind_them_are_losses_though_nothing_names_one():
    for said in ("0 2.31\n1 2.29\n2 nan\n3 nan\n", "step 1 2.3\nstep 2 2.2\nstep 3 nan\nstep 4 nan\n"):
        assert judge(watch(SPINS, log=said)).findings[0].id == "loss_nan_sudden", said


def test_healthy_losses_add_nothing_to_a_watch():
    assert [found.id for found in judge(watch(SPINS, log="step 1 loss 2.3\nstep 2 loss 2.1\n")).findings] == [
        "python_bound"
    ]


def test_a_loss_that_turns_nan_after_the_watch_is_said_at_the_end():
    seen = judge(watch(SPINS, log="step 1 loss 2.3\n"))
    said = "step 1 loss 2.3\nstep 2 loss 2.2\nstep 9 loss nan\n"
    report = judge_end(seen, end(log=said))
    assert [found.id for found in report.findings] == ["loss_nan_sudden", "python_bound"]
    # what was said while it ran is not said again
    during = judge(watch(SPINS, log=said))
    assert judge_end(during, end(log=said)) is during


def test_a_short_command_that_printed_nan_is_not_called_nothing_to_judge():
    report = judge_end(None, end(log="step 1 loss nan\nstep 2 loss nan\n"))
    assert not is_empty(report)
    assert report.verdict == "broken"
    assert report.findings[0].id == "loss_nan_from_start"
    assert is_empty(judge_end(None, end(log="step 1 loss 2.0\n")))
