"""Which rank of a job failed first, on logs that torchrun wrote and on planted cascades."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpudoc.doctor.examine import Request, examine, examine_text
from gpudoc.doctor.model import Report
from gpudoc.errors import GpudocError
from tests.fakes.rank_logs import FAULTS, ORDERED, STYLES, plant

# written by torchrun over gloo on a CPU; job.txt is the script, logs of ranks were kept as they were but for paths
RECORDED = Path(__file__).parent / "recorded_jobs"


def judged(*sources: Path) -> Report:
    return examine(Request(sources=tuple(map(str, sources))))


def first_of(report: Report) -> tuple[int | None, str]:
    assert report.job is not None
    return report.job.judged.rank, report.job.judged.kind


@pytest.mark.parametrize(
    ("log", "rank", "kind", "cause"),
    [
        ("tee_raise.txt", 1, "own", "missing_key"),
        ("plain_raise.txt", 2, "own", "missing_key"),
        ("tee_kill.txt", 1, "killed", "host_oom_killed"),
        ("tee_segv.txt", 1, "crashed", "rank_crashed"),
        ("tee_exit.txt", 1, "exited", "rank_ended"),
        ("tee_hang.txt", 1, "missing", "nccl_timeout_one_rank_busy"),
        ("raise", 1, "own", "missing_key"),
        ("hang", 1, "missing", "nccl_timeout_one_rank_busy"),
    ],
)
def test_the_rank_that_failed_first_in_a_job_that_ran(log, rank, kind, cause):
    report = judged(RECORDED / log)
    assert first_of(report) == (rank, kind)
    assert report.findings[0].id == cause
    assert report.verdict == "broken"


def test_where_a_rank_hangs_torchrun_names_another_one_and_is_not_believed():
    report = judged(RECORDED / "tee_hang.txt")
    assert report.job is not None
    assert report.job.judged.observed_first == 2
    assert report.job.judged.rank == 1
    assert [one.sign for one in report.job.judged.followers] == ["gloo-timeout"]
    assert report.job.judged.followers[0].ranks == (0, 2)


def test_restarts_that_end_at_the_same_step_are_not_to_be_repeated():
    job = judged(RECORDED / "tee_restarts.txt").job
    assert job is not None
    assert [(end.rank, end.step) for end in job.attempts[:2]] == [(1, 5), (1, 5)]
    assert len(job.attempts) == 3
    assert job.next == "stop"
    assert "step 5" in job.again


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_cascades(fault, style, tmp_path):
    job = plant(fault, style, 12, seed=3)
    report = judged(job.write(tmp_path))
    assert first_of(report)[0] == job.rank
    assert report.findings[0].id in fault.causes


def test_of_two_ranks_with_errors_of_their_own_the_earlier_one_is_first_though_its_clock_is_ahead(tmp_path):
    """The clocks of nodes differ by minutes; the steps that all ranks tell of show by how much."""
    seen = set()
    for seed in range(5):
        job = plant(FAULTS[0], next(style for style in STYLES if style.__name__ == "apart"), 16, seed=seed)
        folder = tmp_path / str(seed)
        report = judged(job.write(folder))
        assert report.job is not None
        assert report.job.judged.rank == job.rank
        seen.add(report.job.judged.order)
    assert seen == {"alone", "clock"}
    assert "apart" in ORDERED


def test_files_that_are_no_job_are_the_evidence_of_one_machine(tmp_path):
    env, log = tmp_path / "env.txt", tmp_path / "train.log"
    env.write_text("PyTorch version: 2.6.0+cpu\nGPU models and configuration: GPU 0: NVIDIA L4\n")
    log.write_text("AssertionError: Torch not compiled with CUDA enabled\n")
    report = judged(env, log)
    assert report.job is None
    assert report.findings[0].id == "cpu_only_torch"


def test_one_rank_alone_is_no_job():
    text = b"[rank3]: Traceback (most recent call last):\n[rank3]:   File 'x'\n[rank3]: KeyError: 'a'\n"
    assert examine_text([("x.log", text)]).job is None
    assert examine(Request(texts=(text.decode(),))).job is None


def test_a_pasted_text_of_several_ranks_is_a_job():
    pasted = (RECORDED / "tee_raise.txt").read_text("utf-8")
    assert first_of(examine(Request(texts=(pasted,)))) == (1, "own")


def test_a_folder_of_something_else_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    (tmp_path / "run.log").write_bytes(b"\0\1\2" * 500)
    with pytest.raises(GpudocError, match="contains no log: only 2 other files"):
        judged(tmp_path)


def test_logs_of_which_none_names_a_rank_are_refused_in_a_sentence(tmp_path):
    for name in ("install.log", "notes.txt"):
        (tmp_path / name).write_text("pip install torch\nready\n")
    with pytest.raises(GpudocError, match=r"2 logs in .* none of them says which rank failed"):
        judged(tmp_path)


def test_a_folder_with_one_log_is_that_log(tmp_path):
    shutil.copy(RECORDED / "tee_raise.txt", tmp_path / "job.log")
    assert judged(tmp_path).findings


def test_where_every_rank_only_lost_a_connection_the_first_one_is_not_known(tmp_path):
    lost = "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:4711"
    log = tmp_path / "job.log"
    log.write_text("".join(f"[rank{rank}]: {lost}\n" for rank in range(8)))
    job = judged(log).job
    assert job is not None
    assert job.judged.rank is None
    assert job.confidence == 0
    assert "not known" in job.says
    assert job.by == ""


def test_ranks_that_all_raise_the_same_are_said_to_be_alike(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "".join(f"[rank{r}]: Traceback (most recent call last):\n[rank{r}]: KeyError: 'lr'\n" for r in range(8))
    )
    job = judged(log).job
    assert job is not None
    assert job.judged.alike
    assert len(job.judged.others) == 7
