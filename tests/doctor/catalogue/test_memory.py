from __future__ import annotations

import pytest

from gpudoc.doctor.catalogue import memory
from tests.doctor.catalogue.rows import check_row


@pytest.mark.parametrize("cause", memory.CAUSES, ids=lambda c: c.id)
def test_a_row_tells_meaning_reason_remedy_and_source_in_every_place(cause):
    check_row(cause)
