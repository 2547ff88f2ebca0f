"""What is known of a script so far; complete enough for a profile as soon as it was looked at."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.profile.model import Loader
from gpudoc.script.look import Lever, ScriptLook
from gpudoc.tune.findings import Findings


@dataclass(slots=True, kw_only=True)
class ScriptFindings(Findings):
    """The findings of a search over a script: the look and where its batch can be set besides.

    `why_no_lever` says why no batch was searched, `why_kept` why the script's own settings stand; `feed_notes` are what
    the found loader may change.
    """

    look: ScriptLook
    lever: Lever = "none"
    why_no_lever: str = ""
    batch_reasons: tuple[str, ...] = ()
    feed_notes: tuple[str, ...] = ()
    why_kept: str = ""


def is_own(feed: Loader, look: ScriptLook) -> bool:
    """Whether the settings are those that the script has by itself."""
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
