import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpudoc
from gpudoc import preparation
from gpudoc.doctor.signatures import Matcher
from gpudoc.facts.readers import words
from gpudoc.facts.readers.words import take_apart, ways_of
from gpudoc.knowledge import signature_rows, tables
from gpudoc.knowledge.signature_rows import CODE, FAMILIES, OwnRows, load_folder

ROOT = Path(__file__).parents[1]


def test_what_was_prepared_is_what_the_tables_come_to():
    """`python tools/prepare.py --write` mends it."""
    done = subprocess.run(
        [sys.executable, "tools/prepare.py"], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("families", [FAMILIES, (CODE,)], ids=["machines", "code"])
def test_prepared_rows_are_those_of_the_files(families):
    own = OwnRows(families)
    assert own.anchors is not None
    assert tuple(own) == load_folder(tables.FOLDER / "signatures", families=families)


def test_prepared_ways_are_those_that_taking_apart_finds():
    known = preparation.prepared_ways()
    assert len(known) > 2000
    assert all(ways_of(source) == take_apart(source) for source in known)


def test_a_changed_table_has_effect_at_once(tmp_path):
    """In a copy of the package, whose prepared file is that of the unchanged tables."""
    shutil.copytree(Path(gpudoc.__file__).parent, tmp_path / "gpudoc", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "gpudoc" / "knowledge"
    rows, places = folder / "signatures" / "driver.yaml", folder / "places.yaml"
    rows.write_text(
        rows.read_text("utf-8")
        + "\n- id: of-this-test\n  cause: driver_too_old\n  any: the quokka is asleep\n  confidence: 0.9\n"
        + "  source: https://example.org\n",
        "utf-8",
    )
    places.write_text(places.read_text("utf-8").replace("{name: uv,", "{name: pixi,"), "utf-8")
    code = (
        "from gpudoc.doctor.examine import Request, examine\n"
        "from gpudoc.knowledge.tables import read_table\n"
        "print(*[f.id for f in examine(Request(texts=('train.py: the quokka is asleep',))).findings])\n"
        "print(*[row['name'] for row in read_table('places.yaml', 'packagers')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    found, packagers = done.stdout.splitlines()
    assert "driver_too_old" in found
    assert "pixi" in packagers


def test_without_the_prepared_file_all_is_parsed_and_found(monkeypatch, tmp_path):
    for cached in (preparation._lines, words._prepared, tables._load):
        cached.cache_clear()
    monkeypatch.setattr(preparation, "PREPARED", tmp_path / "none")
    try:
        own = OwnRows((CODE,))
        assert own.anchors is None
        assert len(own) > 50
        assert Matcher(own)
        assert tables.read_table("places.yaml", "packagers")
        assert signature_rows.vocabulary("trouble")
    finally:
        for cached in (preparation._lines, words._prepared, tables._load):
            cached.cache_clear()


def test_a_file_is_known_by_its_bytes_whatever_ends_its_lines():
    assert preparation.key_of("table", b"a\r\nb\r\n") == preparation.key_of("table", "a\nb\n")
    assert preparation.key_of("table", "ab") != preparation.key_of("rows", "ab") != preparation.key_of("rows", "ac")
