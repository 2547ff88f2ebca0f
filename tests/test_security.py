"""Each promise of SECURITY.md names a test, and that test exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)?(?:::)?(test_\w+)`")


def test_every_test_that_security_names_exists():
    named, file = [], ""
    for match in NAMED.finditer((ROOT / "SECURITY.md").read_text("utf-8")):
        # without a file it is in the file that was named last
        file = match[1] or file
        named.append((file, match[2]))
    assert len(named) >= 40
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text("utf-8")]
    assert not missing
