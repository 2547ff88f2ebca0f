from __future__ import annotations

import pytest

from gpudoc.knowledge.tables import read_table, read_text


@pytest.mark.parametrize("name", ["cuda_drivers.yaml", "wheel_archs.yaml", "xid.yaml"])
def test_every_table_says_where_it_was_read_and_when(name):
    assert read_text(name, "source").startswith("https://")
    assert read_text(name, "read") in ("2026-11-20", "2026-11-22")


def test_rows_are_read_by_section():
    assert read_table("cuda_drivers.yaml", "floors")[0]["cuda_major"] == 13
