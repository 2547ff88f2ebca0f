"""The bench command as a person meets it: real processes, real files."""

import json
import os
import subprocess
import sys

import pytest

from gpudoc.cli import app

GPUDOC = [sys.executable, "-m", "gpudoc", "bench"]


def call(*arguments, **options):
    return subprocess.run([*GPUDOC, *arguments], capture_output=True, text=True, timeout=250, check=False, **options)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """One short run with everything it can write."""
    folder = tmp_path_factory.mktemp("bench")
    done = call(
        *("--device", "cpu", "--only", "clock", "--quick"),
        *("--out", str(folder / "a.json"), "--html", str(folder / "a.html")),
    )
    return folder, done


def test_the_screen_the_record_and_the_page(first):
    folder, done = first
    assert done.returncode == 0, done.stderr
    assert "CPU clock" in done.stdout
    assert "the CPU, as requested" in done.stderr
    assert done.stderr.splitlines()[-2:] == [f"wrote {folder / 'a.json'}", f"wrote {folder / 'a.html'}"]
    record = json.loads((folder / "a.json").read_text())
    assert record["schema"] == "gpudoc.bench.v1"
    assert [row["name"] for row in record["measurements"]] == ["cpu_clock"]
    assert "<svg" not in (folder / "a.html").read_text()
    assert "cpu_clock" in (folder / "a.html").read_text()


def test_no_personal_data_is_in_the_record(first):
    folder, _ = first
    text = (folder / "a.json").read_text() + (folder / "a.html").read_text()
    assert os.uname().nodename not in text
    assert str(folder) not in text
    assert os.environ.get("HOME", "/root") + "/" not in text


def altered(folder, name, change):
    record = json.loads((folder / "a.json").read_text())
    change(record)
    (folder / name).write_text(json.dumps(record))
    return str(folder / name)


def slow_clock(record):
    row = next(row for row in record["measurements"] if row["name"] == "cpu_clock")
    for name in ("value", "low", "high", "p10", "p50", "p90"):
        row[name] *= 3


def test_a_regression_exits_with_1_and_says_which_row(first):
    folder, _ = first
    old = altered(folder, "fast.json", slow_clock)
    done = call("--device", "cpu", "--only", "clock", "--quick", "--json", "--compare", old)
    document = json.loads(done.stdout)
    (change,) = document["comparison"]["changes"]
    # on a machine that is busy with other work it is only doubtful
    assert (change["judgement"], done.returncode) in (("slower", 1), ("doubtful", 0))
    assert bool(change["because"]) == (change["judgement"] == "doubtful")


def test_another_machine_is_refused_by_the_key_that_differs(first):
    folder, _ = first
    old = altered(folder, "other.json", lambda record: record["environment"].update(cpu="another CPU"))
    done = call("--device", "cpu", "--only", "clock", "--quick", "--compare", old)
    assert done.returncode == 2
    assert "cpu was another CPU" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--compare", "/no/such/file.json"), "cannot read the old record"),
        (("--html", "/no/such/folder/page.html"), "no such folder"),
        (("--device", "tpu"), "no such device"),
        (("--device", "cpu", "--only", "memroy"), "no such case: memroy"),
        (("--device", "cpu", "--data", "/no/such/folder"), "not a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, said, capfd):
    assert app.run(["bench", *arguments]) == 2
    out, err = capfd.readouterr()
    assert said in err
    assert "try:" in err
    assert "Traceback" not in err
    assert out == ""


def test_a_case_that_does_not_exist_is_said_before_anything_else(capfd):
    assert app.run(["bench", "--device", "cpu", "--only", "matmull"]) == 2
    assert capfd.readouterr().err.startswith("gpudoc: no such case: matmull; did you mean matmul?\n")


# Ctrl+C as soon as a figure was told, which the screen of a pipe does not show
PRESSES = """
import os, signal
from gpudoc.bench import run as room
from gpudoc.cli.app import main
take = room._take
def take_and_press(line, harvest):
    doing = take(line, harvest)
    if harvest.readings:
        room._take = take
        os.kill(os.getpid(), signal.SIGINT)
    return doing
room._take = take_and_press
main()
"""


def test_ctrl_c_shows_and_saves_what_was_measured(tmp_path):
    out = tmp_path / "cut.json"
    command = [sys.executable, "-c", PRESSES, "bench", "--device", "cpu", "--only", "clock,memory", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 130, done.stderr
    assert "interrupted:" in done.stdout
    record = json.loads(out.read_text())
    assert record["interrupted"] is True
    assert record["measurements"]
    assert "Traceback" not in done.stderr
