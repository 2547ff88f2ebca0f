"""README says of real GPUs what the records say, and nothing where there is none."""

import pytest

from benchmarks.gpu_check.keeping import records
from benchmarks.gpu_check.model import Outcome, Record
from benchmarks.gpu_check.readme import NOTHING, ROOT, replaced, rows


def record(driver="570.1", **changes):
    machine = {"gpu0.name": "NVIDIA L4", "driver": driver, "torch": "2.13.0+cu126", "gpus": 1}
    known = {"machine": machine, "gpudoc": "0", "commit": "abc", "began": "2026-12-01 01:00:00 UTC"}
    return Record(**{**known, **changes})


def named(number, kept):
    return ROOT / "records" / f"{number}-gpu-x.json", kept


def test_readme_is_what_the_records_make_of_it():
    text = (ROOT / "README.md").read_text("utf-8")
    assert replaced(text, list(rows(records()))) == text


def test_the_newest_record_of_each_card_and_driver_is_a_row():
    ran = [Outcome(step="doctor", state="passed"), Outcome(step="timing", state="failed")]
    ran.append(Outcome(step="ranks", state="left out"))
    kept = [named(1, record()), named(2, record(outcomes=ran)), named(3, record(driver="580.2"))]
    first, second = rows(kept)
    assert first == (
        "| a real GPU: NVIDIA L4, driver 570.1, PyTorch 2.13.0+cu126 | 1 of 2 steps passed on 2026-12-01; "
        "did not pass: timing ([record](records/2-gpu-x.json)) |"
    )
    assert "driver 580.2" in second


def test_a_stand_in_is_no_real_gpu():
    assert list(rows([named(1, record(is_standin=True))])) == [NOTHING]


def test_a_readme_without_the_row_is_an_error():
    with pytest.raises(ValueError, match="0 places"):
        replaced("| something else |\n", [NOTHING])
    assert replaced(f"| a |\n{NOTHING}\n| b |\n", ["| a real GPU: one |", "| a real GPU: two |"]).count("\n") == 4


def test_records_are_found_by_their_name(tmp_path):
    (tmp_path / "2026-12-01-010000-gpu-L4.json").write_text(record().to_text())
    (tmp_path / "2026-12-01-other.json").write_text("{}")
    assert [path.name for path, _ in records(tmp_path)] == ["2026-12-01-010000-gpu-L4.json"]
