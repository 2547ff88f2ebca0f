import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.cli.piped import is_text_piped_in, waits

DOCTOR = [sys.executable, "-m", "gpudoc", "doctor", "--json"]
LOG = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"

posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows cannot be asked")


@posix
def test_a_log_that_is_piped_in_without_a_dash_is_read():
    done = subprocess.run(DOCTOR, input=LOG, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert (report["source"], report["findings"][0]["id"]) == ("file", "gpu_ecc_error")
    assert done.returncode == 1


@posix
def test_a_log_that_is_redirected_in_is_read(tmp_path):
    (tmp_path / "train.log").write_text(LOG)
    with (tmp_path / "train.log").open() as log:
        done = subprocess.run(DOCTOR, stdin=log, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["findings"][0]["id"] == "gpu_ecc_error"


@posix
def test_what_a_shell_reads_line_by_line_is_left_to_it_and_said(tmp_path):
    (tmp_path / "jobs.txt").write_text("one\ntwo\n")
    loop = (
        f"while read job; do '{sys.executable}' -m gpudoc doctor --quick --json >/dev/null; echo $job; done < jobs.txt"
    )
    told = loop.replace("--quick ", "")
    done = subprocess.run(["sh", "-c", loop], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "one\ntwo\n"
    done = subprocess.run(["sh", "-c", told], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "one\ntwo\n"
    assert done.stderr.count("text is waiting on stdin, but was not read; to read it: gpudoc doctor -") == 1


@posix
def test_an_empty_pipe_and_the_null_device_are_no_text():
    reader, writer = os.pipe()
    try:
        assert not waits(reader)
        os.write(writer, b"x")
        assert waits(reader)
    finally:
        os.close(reader)
        os.close(writer)
    with Path(os.devnull).open() as null:
        assert not waits(null.fileno())


def test_a_closed_stdin_is_no_text():
    assert not waits(10_000)
    assert not is_text_piped_in(10_000)
