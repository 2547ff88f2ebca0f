"""records/: the index names each record that is there, and of each kind only the newest is kept."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "records"
ROW = re.compile(r"^\| \[[^\]]+\]\(([^)]+)\) \| [^|]+ \| (?:`([^`]+)`|by hand) \|$", re.MULTILINE)
# a card has a record of its own, each time that it is asked
A_CARD = re.compile(r"-gpu-(?!check)")


def test_the_index_names_each_record_and_a_script_that_is_there():
    rows = dict(ROW.findall((FOLDER / "README.md").read_text()))
    kept = {path.name for path in FOLDER.iterdir() if path.suffix != ".jsonl" and path.name != "README.md"}
    assert {name for name in kept if not A_CARD.search(name)} == set(rows)
    assert [script for script in rows.values() if script and not (ROOT / script).is_file()] == []


def test_only_the_newest_record_of_a_kind_is_kept():
    kinds = Counter(path.stem[11:] for path in FOLDER.glob("20*") if not A_CARD.search(path.name))
    assert [kind for kind, count in kinds.items() if count > 1] == []
