from __future__ import annotations

from pathlib import Path

from gpudoc.knowledge import cause_rows
from gpudoc.knowledge.cause_rows import AREAS, areas, own_rows, parse_row, rows_by_area
from gpudoc.knowledge.tables import parse_texts

FOLDER = Path(cause_rows.__file__).parent / "causes"


def test_every_row_of_every_file_is_cut_out_whole():
    for area, rows in own_rows().items():
        assert [parse_row(text) for text in rows.values()] == parse_texts((FOLDER / f"{area.lower()}.yaml").read_text())
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(area.lower() for area in AREAS)


def test_no_cause_has_two_rows():
    names = [cause for rows in own_rows().values() for cause in rows]
    assert len(set(names)) == len(names) == len(areas())


def test_rows_of_another_folder_are_read_as_they_are_written(tmp_path):
    for area in AREAS:
        rows = f"# what it is\n\n- id: {area}_one\n  why: 1.10\n\n- id: {area}_two\n"
        (tmp_path / f"{area.lower()}.yaml").write_text(rows, "utf-8")
    found = rows_by_area(tmp_path)
    assert list(found["driver"]) == ["driver_one", "driver_two"]
    assert parse_row(found["GPU"]["GPU_one"]) == {"id": "GPU_one", "why": "1.10"}
