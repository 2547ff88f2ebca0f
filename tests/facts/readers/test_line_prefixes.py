from __future__ import annotations

import pytest

from gpudoc.facts.readers.model import unprefixed


@pytest.mark.parametrize(
    ("line", "rank", "rest"),
    [
        ("[rank12]:     return x", "[rank12]", "     return x"),
        ("2026-05-01T10:00:00Z [rank: 3] KeyError: 'x'", "[rank: 3]", " KeyError: 'x'"),
        ("  7: Traceback", "7", " Traceback"),
        ("worker-0  | KeyError: 'x'", "worker-0", " KeyError: 'x'"),
        ("2026-05-01 10:00:00,123 - ERROR - KeyError: 'x'", "", "KeyError: 'x'"),
        ("    | ValueError: 7", "", "ValueError: 7"),
        ("    return x", "", "    return x"),
        ("(4x20 and 30x2)", "", "(4x20 and 30x2)"),
    ],
)
def test_what_names_a_rank_is_parted_from_the_line_and_noise_is_left_away(line, rank, rest):
    assert unprefixed(line) == (rank, rest)
