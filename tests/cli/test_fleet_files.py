"""gpudoc doctor fleet.json: judged, compared, refused with a reason; never a traceback."""

from __future__ import annotations

import json

import pytest

from gpudoc.cli import app
from gpudoc.fleet.documents import save_record
from gpudoc.fleet.record import Spot
from tests.fleet.simulated import Plan, again, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet")
    healthy, _ = build(Plan(nodes=10, gpus=2, seed=1, only=("matmul",)))
    record, truth = build(Plan(nodes=10, gpus=2, seed=1, slow={Spot(3, 1): 15.0}, only=("matmul",)))
    save_record(path / "healthy.json", healthy)
    save_record(path / "once.json", record)
    save_record(path / "twice.json", again(record, truth))
    (path / "train.log").write_text("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    return path


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("healthy.json", 0, "nothing to drain"),
        ("once.json", 0, "warning: GPU 1 of node 3 is "),
        ("twice.json", 1, "1 to drain: node 3"),
    ],
)
def test_a_saved_record_is_judged(folder, capsys, name, code, said):
    assert app.run(["doctor", str(folder / name)]) == code
    assert said in capsys.readouterr().out


def test_with_fail_on_warning_one_measurement_is_enough(folder):
    assert app.run(["doctor", str(folder / "once.json"), "--fail-on", "warning"]) == 1
    assert app.run(["doctor", str(folder / "healthy.json"), "--fail-on", "warning"]) == 0


def test_a_cause_of_fleets_can_be_ignored(folder, capsys):
    assert app.run(["doctor", str(folder / "twice.json"), "--ignore", "gpu_slower_than_peers"]) == 0
    assert app.run(["doctor", str(folder / "twice.json"), "--ignore", "gpu_slower_than_pears"]) == 2
    assert "did you mean gpu_slower_than_peers?" in capsys.readouterr().err


def test_two_records_are_compared_older_first(folder, capsys):
    assert app.run(["doctor", str(folder / "healthy.json"), str(folder / "once.json"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["comparison"]["worse"][0]["at"] == [[3, 1]]
    assert app.run(["doctor", str(folder / "once.json"), str(folder / "healthy.json")]) == 0


def test_a_record_written_by_hand_with_its_schema_last_is_known_too(folder, tmp_path, capsys):
    plain = json.loads((folder / "healthy.json").read_text())
    plain["schema"] = plain.pop("schema")
    path = tmp_path / "sorted.json"
    path.write_text(json.dumps(plain))
    assert path.stat().st_size < 200_000
    assert app.run(["doctor", str(path)]) == 0
    assert "nothing to drain" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "cut off"),
        (lambda text: text.replace("gpudoc.fleet.v1", "gpudoc.fleet.v2"), "this gpudoc reads gpudoc.fleet.v1"),
        (lambda text: text.replace('"samples":[', '"samples":[null,', 1), "is not a number"),
    ],
)
def test_a_bad_record_is_one_clear_answer_and_exit_code_2(folder, tmp_path, capsys, change, said):
    path = tmp_path / "fleet.json"
    path.write_text(change((folder / "healthy.json").read_text()))
    assert app.run(["doctor", str(path)]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert str(path) in shown.err
    assert not shown.out


@pytest.mark.parametrize(
    ("names", "said"),
    [(("healthy.json", "train.log"), "other sources are not"), (("healthy.json",) * 3, "compares at most two")],
)
def test_what_cannot_go_together_is_refused(folder, capsys, names, said):
    assert app.run(["doctor", *(str(folder / name) for name in names)]) == 2
    assert said in capsys.readouterr().err


def test_a_record_on_standard_input_is_refused_with_the_way_to_judge_it(folder, monkeypatch, capsys):
    with (folder / "healthy.json").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert app.run(["doctor", "-"]) == 2
    assert "gpudoc doctor fleet.json" in capsys.readouterr().err
