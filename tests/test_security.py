"""Each promise of SECURITY.md names a test, and that test exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_security_names_exists():
    named = NAMED.findall((ROOT / "SECURITY.md").read_text("utf-8"))
    assert len(named) >= 8
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text("utf-8")]
    assert not missing
