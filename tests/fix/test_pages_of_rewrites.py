"""The handbook's page of fix has a section for each rewrite, with its claim and what makes it safe or wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpudoc.fix.rewrites import REWRITES

PAGE = (Path(__file__).parents[2] / "docs" / "fix-rewrites.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### `([\w-]+)`\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.id)
def test_each_rewrite_has_a_section_with_its_claim(rewrite):
    text = SECTIONS[rewrite.id]
    assert text.strip().startswith(f"Claim: {rewrite.claim.value}.")
    for word in ("- Safe ", "- Refused ", "- Known problems: "):
        assert text.count(word) == 1


def test_no_section_is_of_a_rewrite_that_is_not_there():
    assert set(SECTIONS) == {rewrite.id for rewrite in REWRITES}
