"""The findings about a script so far; after the look they are complete enough for a profile."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.profile.model import Loader
from gpudoc.script.look import Lever, ScriptLook
from gpudoc.tune.findings import Findings


@dataclass(slots=True, kw_only=True)
class ScriptFindings(Findings):
    """The findings of a search over a script: also the look, and where its batch can be set.

    `why_no_lever` says why no batch was searched, `why_kept` why the script's own settings stay; `feed_notes` say what
    the found loader may change.
    """

    look: ScriptLook
    lever: Lever = "none"
    why_no_lever: str = ""
    batch_reasons: tuple[str, ...] = ()
    feed_notes: tuple[str, ...] = ()
    why_kept: str = ""


def is_own(feed: Loader, look: ScriptLook) -> bool:
    """Whether the settings equal the script's own."""
    loader = look.training
    if loader is None or loader.num_workers != feed.num_workers:
        return False
    if feed.pin_memory != loader.pin_memory and look.on_gpu:
        return False
    if feed.num_workers == 0:
        return True
    return (
        loader.prefetch_factor or 2
    ) == feed.prefetch_factor and loader.persistent_workers == feed.persistent_workers
