import json
from dataclasses import replace

import pytest

from gpudoc.bench.documents import (
    load_record,
    reading_from_json,
    reading_to_json,
    record_to_json,
    save_record,
)
from gpudoc.bench.model import Ceiling, Doubt, NotMeasured, Record
from gpudoc.errors import ExitCode, GpudocError
from tests.bench.builders import reading, row

RECORD = Record(
    environment={"bench_version": 1, "device": "cuda", "cpu": "a CPU", "threads": 2},
    measurements=(
        replace(
            row(value=50.0), ceiling=Ceiling(63.015, "PCIe Gen5 x16", 63.015), doubts=(Doubt("spread", "spread 20%"),)
        ),
        replace(row("p2p"), value=None, doubts=(Doubt("impossible", "refused"),)),
        row("launch_queued", better="lower", unit="µs"),
    ),
    not_measured=(NotMeasured("folder", "no folder"), NotMeasured("matmul", "broke", failed=True)),
    interrupted=True,
    seconds=12.3456,
)


def test_a_reading_survives_the_pipe():
    one = reading(context={"a": 1.5}, corrupted="x", parameters={"bytes": 4, "host": "pinned"}, round=2)
    assert reading_from_json(json.loads(json.dumps(reading_to_json(one)))) == one


def test_a_record_survives_the_file(tmp_path):
    save_record(tmp_path / "r.json", RECORD)
    loaded = load_record(tmp_path / "r.json")
    assert loaded == replace(RECORD, seconds=12.35)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"], "nothing half-written is left"


def test_the_document_has_the_fields_of_the_contract():
    document = record_to_json(RECORD)
    assert document["schema"] == "gpudoc.bench.v1"
    first = document["measurements"][0]
    named = "name device parameters value unit samples p10 p50 p90 ceiling ceiling_from share_of_ceiling doubts"
    assert set(named.split()) <= set(first)
    assert first["share_of_ceiling"] == pytest.approx(50 / 63.015, rel=1e-5)
    assert document["measurements"][1]["value"] is None
    assert document["measurements"][1]["ceiling_from"].startswith("no ceiling: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Invalid JSON"),
        ('{"schema": "gpudoc.tune.v1"}', "schema"),
        ('{"schema": "gpudoc.bench.v1", "environment": {}, "measurements": [{"name": "x"}]}', "measurements.0"),
        ("[1, 2]", "document"),
    ],
)
def test_an_unreadable_record_says_what_is_wrong_with_it(tmp_path, text, said):
    (tmp_path / "old.json").write_text(text)
    with pytest.raises(GpudocError, match=said) as caught:
        load_record(tmp_path / "old.json")
    assert caught.value.exit_code == ExitCode.NOT_DONE
    assert "gpudoc bench --out" in caught.value.hint


def test_a_record_that_is_missing_or_binary(tmp_path):
    with pytest.raises(GpudocError, match="no such bench record"):
        load_record(tmp_path / "none.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GpudocError, match="not UTF-8"):
        load_record(tmp_path / "b.json")


def test_writing_where_no_folder_is(tmp_path):
    with pytest.raises(GpudocError, match="cannot be written"):
        save_record(tmp_path / "no" / "r.json", RECORD)
