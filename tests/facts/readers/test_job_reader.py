"""Logs that are cut, empty, of other encodings, or hold what only looks like a rank."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpudoc.doctor.ranks import rank_rows, read_job
from gpudoc.facts.readers.job_end import AttemptEnd, lines_of
from gpudoc.facts.readers.job_failure import judge_job
from gpudoc.facts.readers.job_files import identify
from gpudoc.facts.readers.job_log import RankSign
from gpudoc.facts.readers.job_scan import FileScan, SignWords
from gpudoc.knowledge.tables import read_rows
from tests.fakes.rank_logs import FAULTS, plant, tee

WORDS = SignWords(read_rows("rank_signs.yaml", "signs", RankSign))
STEPS = "".join(f"2026-11-25 10:00:{second:02d} INFO step {second} loss 2.0\n" for second in range(0, 50, 5))
RAISED = "Traceback (most recent call last):\n  File \"train.py\", line 8, in <module>\n    x = a['b']\nKeyError: 'b'\n"
LOST = "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:4711\n"


def end_of(folder: Path) -> AttemptEnd:
    job = read_job(identify(sorted(folder.rglob("*.*"))))
    assert job is not None
    failure = judge_job(job, rank_rows())
    assert failure is not None
    return failure.judged


def write(folder: Path, *texts: bytes | str) -> Path:
    for rank, text in enumerate(texts):
        data = text if isinstance(text, bytes) else text.encode()
        (folder / f"rank_{rank}.log").write_bytes(data)
    return folder


def test_the_first_failure_and_what_the_others_did(tmp_path):
    end = end_of(write(tmp_path, STEPS + LOST, STEPS + RAISED, STEPS + LOST))
    assert (end.rank, end.kind, end.step, end.origin) == (1, "own", 45, "rank_1.log line 14")
    assert [(one.sign, one.ranks) for one in end.followers] == [("peer-gone", (0, 2))]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp1252"])
def test_a_log_of_another_encoding(encoding, tmp_path):
    end = end_of(write(tmp_path, STEPS + LOST, (STEPS + "café\n" + RAISED).encode(encoding), STEPS + LOST))
    assert (end.rank, end.origin) == (1, "rank_1.log line 15")


def test_a_log_that_gzip_packed_and_that_was_cut(tmp_path):
    write(tmp_path, STEPS + LOST, "", STEPS + LOST)
    packed = gzip.compress(("ordinary line\n" * 1000 + STEPS + RAISED + "more\n" * 1000).encode())
    (tmp_path / "rank_1.log").unlink()
    (tmp_path / "rank_1.log.gz").write_bytes(packed[:-12])
    assert end_of(tmp_path).rank == 1


def test_a_log_that_begins_and_ends_in_the_middle_of_a_line(tmp_path):
    end = end_of(write(tmp_path, (STEPS + LOST)[30:-20], (STEPS + RAISED)[25:-3], (STEPS + LOST)[7:]))
    assert end.rank == 1


def test_a_rank_that_never_wrote_is_named(tmp_path):
    end = end_of(write(tmp_path, STEPS + LOST, "", STEPS + LOST, STEPS + LOST))
    assert (end.rank, end.kind, end.silent) == (1, "silent", (1,))


def test_an_error_that_a_rank_lived_on_with_is_not_its_end(tmp_path):
    lived_on = STEPS[:90] + RAISED + STEPS[90:]
    assert end_of(write(tmp_path, lived_on + LOST, STEPS + RAISED, STEPS + LOST)).rank == 1


def test_what_a_buffer_held_behind_the_error_does_not_hide_it(tmp_path):
    buffered = RAISED + STEPS
    end = end_of(write(tmp_path, STEPS + LOST, buffered, STEPS + LOST))
    assert (end.rank, end.kind) == (1, "own")


def test_an_error_behind_a_lost_connection_follows_from_it_whatever_the_clock_says(tmp_path):
    early = "2026-11-25 09:00:00 ERROR lost\n" + LOST + RAISED
    late = "2026-11-25 11:00:00 ERROR stops\n" + RAISED
    assert end_of(write(tmp_path, early, late, STEPS + LOST)).rank == 1


def test_the_lines_around_a_failure_are_those_of_its_rank_and_begin_with_a_whole_line(tmp_path):
    secret = "password=" + "s" * 3_000
    lines = [f"[rank{n % 2}]: {secret if n == 3 else 'ordinary'} {n}\n" for n in range(10_000)]
    log = tmp_path / "job.log"
    log.write_text("".join(lines) + "".join(f"[rank1]: {line}\n" for line in RAISED.splitlines()) + f"[rank0]: {LOST}")
    job = read_job(identify([log]))
    assert job is not None
    failure = judge_job(job, rank_rows())
    assert failure is not None
    around = lines_of(job, failure.judged)
    assert around[-1].text == "[rank1]: KeyError: 'b'"
    assert around[-1].number == 10_004
    assert {line.text[:8] for line in around} == {"[rank1]:"}


def test_one_line_in_many_blocks_takes_no_more_memory_than_a_block(tmp_path):
    write(tmp_path, b"x" * (5 << 20) + b"\n" + LOST.encode(), STEPS + RAISED, STEPS + LOST)
    assert end_of(tmp_path).rank == 1


def test_of_a_log_in_which_every_line_seems_to_show_an_end_the_end_is_read(tmp_path):
    noise = "".join(f"[rank0]: shard {n} of Error bars\n" for n in range(20_000))
    log = tmp_path / "job.log"
    log.write_text(noise + "[rank1]: KeyError: 'b'\n")
    scan = FileScan(identify([log])[0], WORDS, window=1_000, most_hits=50)
    scan.read()
    (sign,) = scan.streams[0, ("rank", 0, 1)].signs["exception"]
    assert sign.line == 20_001


@pytest.mark.parametrize("odd", ["²", "１"])
def test_a_rank_in_odd_digits_is_no_fault(odd, tmp_path):
    job = plant(FAULTS[3], tee, 4)
    text = "\n".join(job.files["job.log"])
    (tmp_path / "job.log").write_text(text.replace("  rank      : 1 ", f"  rank      : {odd} "))
    assert odd in (tmp_path / "job.log").read_text()
    assert read_job(identify([tmp_path / "job.log"])) is not None


@pytest.mark.parametrize("number", ["999999999", "9" * 70])
def test_a_number_that_no_job_has_is_no_rank(number, tmp_path):
    """Nor does a log of a few lines take memory for all the ranks below it."""
    text = "\n".join(plant(FAULTS[3], tee, 4).files["job.log"])
    (tmp_path / "job.log").write_text(text.replace("  rank      : 1 ", f"  rank      : {number} "))
    job = read_job(identify([tmp_path / "job.log"]))
    assert job is not None
    assert job.attempts[0].num_ranks == 4


def test_an_exit_code_of_two_signs_is_none(tmp_path):
    text = "\n".join(plant(FAULTS[3], tee, 4).files["job.log"])
    (tmp_path / "job.log").write_text(text.replace("exitcode  : -9", "exitcode  : --9"))
    assert read_job(identify([tmp_path / "job.log"])) is not None


def test_lines_that_name_all_ranks_again_and_again_are_bounded(tmp_path):
    lines = "".join(f"srun: error: n{at}: tasks 0-{65_535 - at}: Exited with exit code 1\n" for at in range(4))
    (tmp_path / "job.log").write_text(STEPS + lines)
    job = read_job(identify([tmp_path / "job.log"]))
    assert job is not None
    assert sum(len(log.signs) for log in job.attempts[0].ranks.values()) <= 2 * 65_536
