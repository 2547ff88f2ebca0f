"""torchrun's error files: read as lines of a log, alone and as those of a job's ranks."""

import json

import pytest

from gpudoc.doctor.examine import Request, examine
from gpudoc.facts.readers.error_file import read_error_file
from gpudoc.facts.readers.intake import load

STACK = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 41, in main\n    {}\n{}\n'
WAITED = (
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank {0}. Original reason for failure was: "
    "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)


def written(error, *, line="loss.backward()", at="1764060000", **message):
    extra = {"py_callstack": STACK.format(line, error), "timestamp": at}
    return json.dumps({"message": {"message": error, "extraInfo": extra, **message}}).encode()


def test_it_says_when_the_rank_failed_and_how():
    text = read_error_file(written("KeyError: 'label'", line="batch['label']"))
    assert text.decode().splitlines() == [
        "2025-11-25 08:40:00 UTC: the rank failed",
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 41, in main',
        "    batch['label']",
        "KeyError: 'label'",
    ]


def test_what_pytorch_itself_writes_is_read(tmp_path, monkeypatch):
    from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    try:
        {}["label"]
    except KeyError as error:
        ErrorHandler().record_exception(error)
    lines = load(tmp_path / "error.json").decode().splitlines()
    assert "UTC: the rank failed" in lines[0]
    assert lines[1] == "Traceback (most recent call last):"
    assert "KeyError: 'label'" in lines


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"message"',
        b'{"message": "died"}',
        b'{"message": {"extraInfo": {"py_callstack": 3}}}',
        b'{"message": {"extraInfo": "py_callstack"}}',
        b'{"message": {"message": 1, "extraInfo": {"py_callstack": "x"}}}',
        b'{"message": ' + b"[" * 100_000 + b' "py_callstack"',
        b'{"message": {}} ' + b" " * (5 << 20) + b'"py_callstack"',
    ],
)
def test_what_is_none_is_left_as_it_is(data):
    assert read_error_file(data) is None


@pytest.mark.parametrize("at", ["", "soon", "9" * 40, "-5", "²", None, 7])
def test_a_time_that_is_none_is_left_out(at):
    assert read_error_file(written("KeyError: 'label'", at=at)).startswith(b"Traceback")


def test_error_files_of_ranks_say_which_one_failed_first_and_the_cause(tmp_path):
    for rank in range(4):
        folder = tmp_path / "none_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        error = "KeyError: 'label'" if rank == 2 else WAITED.format(rank)
        (folder / "error.json").write_bytes(written(error, at=str(1764060000 + (0 if rank == 2 else 600))))
        (folder / "stdout.log").write_text("step 1 loss 2.0\n")
    report = examine(Request(sources=(str(tmp_path),)))
    assert (report.job.judged.rank, report.job.judged.kind) == (2, "own")
    assert report.findings[0].id == "missing_key"
