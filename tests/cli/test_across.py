"""`bench --across` as it is typed: options that contradict each other, and the job that is only written."""

from __future__ import annotations

import json

import pytest

from gpudoc.cli.app import run
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fleet import allocation


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench", "--slurm", "job.sh"], "--slurm needs --across"),
        (["bench", "--bad-hosts"], "--bad-hosts needs --across"),
        (["bench", "--across", "--bad-hosts", "--json"], "both print the result"),
        (["bench", "--across", "--only", "links"], "no such part"),
        (["bench", "--across", "--device", "cuda:1"], "names one"),
        (["bench", "--across", "--compare", "none.json"], "none.json"),
        (["bench", "--across", "--out", "nowhere/fleet.json"], "no such folder"),
        (["doctor", "train.log", "--slurm", "job.sh"], "takes no other names"),
        (["doctor", "--pid", "1", "--slurm", "job.sh"], "takes no other names"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_usage_and_measures_nothing(arguments, said, capsys):
    assert run(arguments) == 2
    said_here = capsys.readouterr()
    assert said in said_here.err + said_here.out


def test_with_json_a_mistake_is_a_document(capsys):
    assert run(["bench", "--across", "--only", "links", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["schema"] == "gpudoc.error.v1"


@pytest.mark.parametrize("shared", [True, False])
def test_shared_reaches_the_run(shared, monkeypatch):
    asked = []

    def refuse(options, _):
        asked.append(options.shared)
        raise GpudocError("other processes compute", exit_code=ExitCode.BAD_ANSWER)

    monkeypatch.setattr(allocation, "run", refuse)
    assert run(["bench", "--across", "--quick", *["--shared"] * shared]) == 1
    assert asked == [shared]


@pytest.mark.parametrize("command", ["bench --across", "doctor"])
def test_the_job_is_written_and_nothing_is_measured(command, monkeypatch, capsys, tmp_path):
    arguments = [*command.split(), "--quick", "--slurm", "job.sh"]
    monkeypatch.setattr("sys.argv", ["gpudoc", *arguments])
    assert run(arguments) == 0
    assert "sbatch job.sh" in capsys.readouterr().out
    text = (tmp_path / "job.sh").read_text()
    assert f"gpudoc {command} --quick" in text
    assert "--slurm" not in text
