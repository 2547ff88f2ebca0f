from __future__ import annotations

import pytest

from gpudoc.doctor.catalogue import gpus
from tests.doctor.catalogue.rows import check_row


@pytest.mark.parametrize("cause", gpus.CAUSES, ids=lambda c: c.id)
def test_a_row_tells_meaning_reason_remedy_and_source_in_every_place(cause):
    check_row(cause)
