from __future__ import annotations

from pathlib import Path

import pytest

from gpudoc.facts.readers.intake import names_ranks
from gpudoc.facts.readers.job_files import find_logs, identify


def ranks_of(*names: str) -> list[int | None]:
    return [one.rank for one in identify([Path("/logs", name) for name in names])]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("rank_0.log", "rank_12.log"), [0, 12]),
        (("a.rank3.err", "a.rank4.err"), [3, 4]),
        (("job.0.out", "job.1.out", "job.2.out"), [0, 1, 2]),
        (("slurm-4711-0.out", "slurm-4711-1.out"), [0, 1]),
        (("env.txt", "train.log"), [None, None]),
    ],
)
def test_the_rank_that_a_name_says(names, ranks):
    assert ranks_of(*names) == ranks


def test_folders_of_torchrun_say_attempt_and_place():
    one, two = identify([Path(f"/l/x/attempt_{a}/3/stderr.log") for a in (0, 1)])
    assert (one.attempt, one.local, two.attempt) == (0, 3, 1)


def test_numbers_of_jobs_are_attempts_in_their_order():
    files = identify([Path("/l/slurm-4720.out"), Path("/l/slurm-4711.out")])
    assert [(one.attempt, one.rank) for one in files] == [(1, None), (0, None)]


def test_a_node_in_a_path_is_the_host():
    files = identify([Path("/l/node03/rank_1.log"), Path("/l/node04/rank_9.log")])
    assert [one.host for one in files] == ["node03", "node04"]


def test_logs_are_found_below_a_folder_and_nothing_else(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "rank_0.log").write_text("x")
    (tmp_path / "a" / "rank_1.log").write_text("")
    (tmp_path / "model.pt").write_bytes(bytes(50))
    (tmp_path / "data.log").write_bytes(bytes(5_000))
    (tmp_path / ".hidden.log").write_text("x")
    (tmp_path / "linked.log").symlink_to(tmp_path / "a" / "rank_1.log")
    assert {path.name for path in find_logs(tmp_path)} == {"rank_0.log", "rank_1.log"}


@pytest.mark.parametrize(
    ("text", "several"),
    [
        (b"[rank0]: a\n[rank1]: b\n", True),
        (b"0: a\n1: b\n", True),
        (b"[rank0]: a\n[rank0]: b\n", False),
        (b"step 0: a\nstep 1: b\n", False),
        (b"KeyError: 1\n", False),
    ],
)
def test_whether_a_text_names_several_ranks(text, several):
    assert names_ranks(text) is several
