import os

import pytest

from gpudoc.doctor.causes import holders
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.facts.model import GpuProcess
from gpudoc.facts.readers import read
from gpudoc.render.doctor import render
from tests.doctor.causes.judge import first, foremost, never, report_of
from tests.doctor.causes.judge import told as told_by
from tests.fakes.machine import H100, FakeMachine
from tests.fakes.scenarios import well
from tests.machines.built import GIB, ask, found, gpu, machine


def held(pid=9, gib=78, **facts):
    return GpuProcess(pid=pid, memory_bytes=gib * GIB, name="python", alive=True, **facts)


def full(index=0, *processes, free=1):
    return gpu(index, processes=processes, memory_free_bytes=free * GIB)


def finding(*gpus):
    (one,) = ask(holders.find_held, machine(*gpus))
    return one


def test_a_card_in_use_is_information_and_a_full_one_a_warning():
    assert found(holders.find_held, machine(full(0, held(), free=9))) == [("oom_other_process", "info")]
    assert found(holders.find_held, machine(full(0, held(), free=1))) == [("oom_other_process", "warning")]
    assert found(holders.find_held, machine(gpu(0, processes=(), memory_free_bytes=79 * GIB))) == []


def test_eight_full_cards_are_one_warning_that_names_each_card_and_process():
    told = finding(*[full(n, held(100 + n, user="ann", command="python train.py", age_s=7200.0)) for n in range(8)])
    assert told.title == "8 of 8 GPUs are full"
    assert [card.index for card in told.cards] == list(range(8))
    assert "ann's python train.py (pid 103, for 2 h 00 min) holds 78 GiB" in told.evidence[3].value


def test_a_full_card_without_any_process_is_no_all_clear():
    told = finding(full(0))
    assert told.severity == "warning"
    assert "no process is shown" in told.evidence[0].value


def commands(*gpus):
    return [step.run for step in finding(*gpus).fix if step.run]


def test_the_callers_own_are_ended_gently_by_what_started_them():
    assert commands(full(0, held(4711, own=True))) == ["kill -TERM 4711"]
    assert commands(full(0, held(4711, own=True, job="slurm 88"))) == ["scancel 88"]
    assert commands(full(0, held(4711, own=True, container="docker 3f2a91c04d17 (a)"))) == ["docker stop 3f2a91c04d17"]


def test_nobody_elses_process_is_ended_and_the_free_card_is_named():
    told = finding(full(0, held(4711, own=False, user="ann")), gpu(1, processes=(), memory_free_bytes=79 * GIB))
    assert not any("kill" in step.run or "4711" in step.run for step in told.fix)
    assert any("Ask ann about GPU 0" in step.say for step in told.fix)
    assert any("CUDA_VISIBLE_DEVICES=1 " in step.run for step in told.fix)
    assert not any("kill" in step for step in commands(full(0, held(4711))))


def test_live_from_the_driver_and_the_files_of_the_processes(tmp_path):
    fake = FakeMachine(tmp_path / "machine")
    well(fake, H100, 2)
    fake.file("proc/uptime", "100000.0 1\n")
    fake.file("etc/passwd", "ann:x:4242:1::/home/ann:\n")
    for index, uid in enumerate((4242, os.getuid())):
        place = f"proc/{500 + index}"
        fake.file(f"{place}/status", f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        fake.file(f"{place}/cmdline", "python\0/home/ann/train.py\0--key\0s3cret\0")
        fake.file(f"{place}/cgroup", "0::/system.slice/slurmstepd.scope/job_88/step_0\n" if uid == 4242 else "0::/\n")
        (fake.root / place / "fd").mkdir()
        (fake.root / place / "fd/7").symlink_to("/dev/nvidia0")
        fake.answer("nvmlDeviceGetMemoryInfo", f"{80 * GIB} {79 * GIB}", index)
        fake.answer("nvmlDeviceGetComputeRunningProcesses", f"{500 + index}:{78 * GIB}", index)
    report = diagnose(Evidence(source="machine", machine=fake.collect(quick=True)))
    (told,) = [f for f in report.findings if f.id == "oom_other_process"]
    assert (report.verdict, told.title) == ("warning", "2 of 2 GPUs are full")
    assert "ann's python train.py (pid 500, slurm 88) holds 78 GiB" in told.evidence[0].value
    assert [step.run for step in told.fix if step.run] == ["kill -TERM 501"]
    screen = render(report)
    assert "slurm 88" in screen
    assert "s3cret" not in screen
    assert "Ask ann about GPU 0" in screen


TABLE = """| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |
|   0  NVIDIA H100 80GB HBM3  On   | 00000000:17:00.0 Off |                    0 |
| N/A   64C    P0   412W / 700W |  80500MiB / 81559MiB |     97%      Default |
|   1  NVIDIA H100 80GB HBM3  On   | 00000000:27:00.0 Off |                    0 |
| N/A   34C    P8    70W / 700W |      5MiB / 81559MiB |      0%      Default |
| Processes:                                                                  |
|    0   N/A  N/A      4711      C   python                          80490MiB |
"""


def test_a_pasted_table_names_the_full_card_and_its_process():
    (told,) = [f for f in report_of(TABLE).findings if f.severity != "info"]
    assert (told.id, told.severity, told.title) == ("oom_other_process", "warning", "1 of 2 GPUs is full")
    assert told.evidence[0].value == "GPU 0: 1.03 GiB of 79.6 GiB free; python (pid 4711) holds 78.6 GiB"
    assert [card.index for card in told.cards] == [0]
    assert told.evidence[0].origin == "line 7"


def test_in_a_log_the_full_card_is_the_programs_own():
    assert "oom_other_process" not in [f.id for f in report_of(TABLE + "Epoch 3 step 100 loss 1.2").findings]
    assert read(TABLE).machine.gpus[0].processes[0].pid == 4711


test_what_only_looks_like_it_names_nothing = never([
    ("oom_fragmentation", "CUDA out of memory. If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."),  # the allocators own hint tells nothing
    ("oom_after_batch_size_finder", "auto_find_batch_size=False\nCUDA out of memory with batch size 8"),  # a finder that is switched off chose nothing
])  # fmt: skip
LOADED = "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize\nLoaded runtime CuDNN library: 7.1 but source was compiled with: 7.4"

test_a_library_that_could_not_be_loaded_is_another_matter = never(
    [("oom_masked_as_library_error", LOADED)], seen=foremost
)

IDLE_CARD = """| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2 |
|   0  Tesla V100-SXM2...  Off  | 00000000:05:00.0 Off |                    0 |
| N/A   36C    P0    41W / 300W |  {used}MiB / 16280MiB |      0%      Default |
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
{rows}+-----------------------------------------------------------------------------+
"""
ROW = "|    0      4711      C   python                                     11800MiB |\n"


def test_memory_without_a_process_belongs_to_somebody_who_is_not_listed():
    assert first("I get OOM at once\n" + IDLE_CARD.format(used=11900, rows="")) == "oom_other_process"


NONE = "|  No running processes found                                                  |\n"


def test_a_full_idle_card_without_a_process_is_no_healthy_one():
    """Without a word about it, too; a card that is half full, or busy, may be somebody's work in a container."""
    (told,) = report_of(IDLE_CARD.format(used=15900, rows=NONE)).findings
    assert (told.id, told.severity) == ("oom_other_process", "warning")
    assert "at 0 %, no process listed" in told.evidence[0].value
    assert report_of(IDLE_CARD.format(used=8000, rows=NONE)).verdict == "healthy"
    assert report_of(IDLE_CARD.format(used=15900, rows=NONE).replace(" 0% ", "96% ")).verdict == "healthy"


@pytest.mark.parametrize(("used", "rows"), [(11900, ROW), (300, "")])
def test_memory_with_an_owner_or_hardly_any_belongs_to_nobody_else(used, rows):
    text = "I get OOM at once\n" + IDLE_CARD.format(used=used, rows=rows)
    assert "oom_other_process" not in [finding.id for finding in told_by(holders.FINDERS[-1:], text)]
