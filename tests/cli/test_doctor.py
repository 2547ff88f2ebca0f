from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.cli import app
from gpudoc.cli.doctor import is_text_piped_in, waits

LOG = "Traceback (most recent call last):\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
DOCTOR = [sys.executable, "-m", "gpudoc", "doctor", "--json"]

posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows cannot be asked")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


def document(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_log_is_judged_and_the_exit_code_is_that_of_the_verdict(log, capsys):
    assert app.run(["doctor", log]) == 1
    assert "gpu_ecc_error" in capsys.readouterr().out


def test_json_is_exactly_one_document(log, capsys):
    assert app.run(["doctor", log, "--json"]) == 1
    plain = document(capsys)
    assert (plain["schema"], plain["source"], plain["verdict"]) == ("gpudoc.doctor.v1", "file", "broken")


def test_an_ignored_cause_is_left_out(log, capsys):
    app.run(["doctor", log, "--json", "--ignore", "gpu_ecc_error"])
    assert "gpu_ecc_error" not in [f["id"] for f in document(capsys)["findings"]]


def test_warnings_fail_only_when_asked_to(tmp_path, capsys):
    path = tmp_path / "w.log"
    path.write_text("The 'train_dataloader' does not have many workers which may be a bottleneck.")
    assert app.run(["doctor", str(path)]) == 0
    assert app.run(["doctor", str(path), "--fail-on", "warning"]) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (bytes(range(256)) * 40, "binary"), (b'{"schema": "gpudoc.doctor.v7"}', "gpudoc.doctor.v7")],
)
def test_a_bad_file_is_one_clear_answer_and_exit_code_2(tmp_path, capsys, content, words):
    path = tmp_path / "bad"
    path.write_bytes(content)
    assert app.run(["doctor", str(path)]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert "Traceback" not in shown.err
    assert not shown.out


def test_a_missing_file_and_a_directory_too(tmp_path, capsys):
    assert app.run(["doctor", str(tmp_path / "none.log")]) == 2
    assert app.run(["doctor", str(tmp_path)]) == 2
    app.run(["doctor", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["schema"] == "gpudoc.error.v1"


def test_list_explain_and_an_unknown_id(capsys):
    assert app.run(["doctor", "--list"]) == 0
    assert "driver_too_old" in capsys.readouterr().out
    assert app.run(["doctor", "--explain", "driver_too_old"]) == 0
    assert app.run(["doctor", "--explain", "nonsense"]) == 2


def test_this_machine_by_a_real_run_through_a_pipe():
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", "doctor", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1"},
    )
    plain = json.loads(done.stdout)
    assert plain["source"] == "machine"
    assert done.returncode == (plain["verdict"] in ("broken", "unknown"))
    assert plain["facts"]["host"]["cpu_count"] == os.cpu_count()


def test_a_text_comes_in_by_standard_input():
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", "doctor", "-", "--json"],
        input=LOG,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(done.stdout)["findings"][0]["id"] == "gpu_ecc_error"


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


def test_the_parent_never_imports_torch(log):
    code = (
        "import sys; from gpudoc.cli import app; app.run(['doctor', sys.argv[1], '--json']);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, log], capture_output=True, timeout=120).returncode == 0


@pytest.mark.parametrize("how", [[], ["--json"], ["--markdown"], ["--verbose"]])
def test_a_pipe_that_knows_only_ascii_gets_an_answer_and_no_fault(log, how):
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", "doctor", log, *how],
        capture_output=True,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 1, done.stderr
    assert b"gpu_ecc_error" in done.stdout


def test_the_language_of_the_answer_can_be_chosen_and_a_wrong_one_is_named(log, capsys):
    assert app.run(["doctor", log, "--language", "ru", "--json"]) == 1
    said = document(capsys)
    assert said["language"] == "ru"
    assert app.run(["doctor", log, "--language", "xx"]) == 2
    assert "'en', 'zh', 'ru'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("quoted", [True, False])
def test_a_pasted_error_may_be_longer_than_the_name_of_a_file(tmp_path, monkeypatch, capsys, quoted):
    monkeypatch.chdir(tmp_path)
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. " + "GPU 0 has 1.10 GiB free. " * 20
    words = [text] if quoted else text.split()
    assert app.run(["doctor", *words, "--sarif", "found.sarif", "--html", "page.html"]) == 1
    assert "memory" in capsys.readouterr().out
    assert json.loads((tmp_path / "found.sarif").read_text())["runs"]
