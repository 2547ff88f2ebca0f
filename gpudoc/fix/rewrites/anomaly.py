"""17: anomaly detection is left on: it keeps a traceback per autograd node and looks for NaN in each gradient."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import backwards
from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, replace
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import argument, called, calls, enclosing, is_false, is_true, local_functions, qualified, words
from gpudoc.patterns import Pattern

ID = "anomaly-off"
_SWITCHES = ("torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly")
# exceptions that a NaN does not cause
_OTHER = Pattern(
    r"^\W*(?:KeyboardInterrupt|StopIteration|ImportError|OSError|FileNotFoundError|IndexError|KeyError)\W*$"
)
_DEPTH = 4
_CONTEXTS = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """The change or refusal for the place that switches it on, if it was on in the steps."""
    if not evidence.anomaly_detection:
        return []
    places = [(call, edit) for call in calls(source.module) if (edit := _edit(source, call)) is not None]
    if not places:
        return []
    call, edit = places[0]
    site = RewriteSite(ID, Claim.EXACT, source, call)
    if len(places) > 1:
        return [site.refuse(f"{len(places)} places switch anomaly detection on, and one change may only touch one")]
    if isinstance(edit, str):
        return [site.refuse(edit)]
    if "is_anomaly_enabled" in words(source):
        return [site.refuse("the script asks whether anomaly detection is on, so it may do something else without it")]
    if enclosing(source, call, cst.Try) is not None or _is_caught(source):
        return [
            site.refuse(
                "a try around it or around a backward may count on the error that anomaly detection raises at a NaN"
            )
        ]
    return [site.change([edit], "A NaN in a backward no longer stops the script.")]


def _is_caught(source: Source) -> bool:
    """Whether a `try` or `suppress` may catch what a backward raises."""
    for one in source.nodes:
        if isinstance(one, cst.Try):
            kinds = [handler.type for handler in one.handlers]
            catches = any(kind is None or not _OTHER.search(source.code(kind)) for kind in kinds)
        elif isinstance(one, cst.With):
            catches = any("suppress" in source.code(item.item) for item in one.items)
        else:
            continue
        if catches and _comes_to_backward(source, one.body, depth=0):
            return True
    return False


def _comes_to_backward(source: Source, place: Node, *, depth: int) -> bool:
    if backwards(place):
        return True
    functions = [one for call in calls(place) for one in local_functions(source, called(call))]
    return depth < _DEPTH and any(_comes_to_backward(source, one, depth=depth + 1) for one in functions)


def _edit(source: Source, call: cst.Call) -> Edit | str | None:
    """The edit that switches it off, the reason if it cannot be made, or None if this call does not switch it on."""
    name = qualified(source, call.func)
    if name in _CONTEXTS:
        if not isinstance(call.func, cst.Attribute):
            return "detect_anomaly is imported by its name, and its counterpart that switches it off is not"
        return Edit(source.span(call.func.attr)[0], source.span(call)[1], "set_detect_anomaly(False)")
    if name in _SWITCHES:
        mode = argument(call, "mode", 0)
    elif called(call) == "Trainer":
        mode = argument(call, "detect_anomaly")
        if mode is None:
            return None
    else:
        return None
    if mode is None:
        return "its argument cannot be read here"
    if is_true(mode.value):
        return replace(source, mode.value, "False")
    if is_false(mode.value):
        return None
    return f"`{source.code(mode.value)}` decides it when the script starts: start it with that switched off"


ANOMALY_OFF = Rewrite(ID, 17, Claim.EXACT, find)
