"""The JSON document of a search, `gpudoc.tune.v1`: the same head for a config and for a command."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoc.profile.merge import Merged
from gpudoc.tune.findings import Findings

SCHEMA = "gpudoc.tune.v1"


def search_document(stored: Merged | None, found: Findings | None, **more: object) -> Mapping[str, object]:
    """The profile as it is in the file, null if none was written; `more` comes between it and the answer.

    The answer is null if no speed was asked for, or if nothing was tuned.
    """
    is_answered = stored is not None and found is not None and found.asked_for_speed
    return {
        "schema": SCHEMA,
        "profile": None if stored is None else stored.profile.document(),
        "path": None if stored is None else str(stored.path),
        "kept": [] if stored is None else list(stored.kept),
        **more,
        "answer": found.verdict.document() if found is not None and is_answered else None,
    }
