"""Mixed precision gone wrong in other words than torch's own: apex, closures, scalers in code, losses in logs."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import by_text, quote, words
from gpudoc.doctor.model import Finding, Skip
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_MIXED = Listed("half-or-mixed")
_SCALES = words(r"\bscaler\.scale\(")
_SCALER_STEPS = words(r"\bscaler\.step\(")
_UPDATES = words(r"\bscaler\.update\(")
_PLAIN_STEP = Pattern(r"(?m)^[^\n#]*\bopt\w*\.step\(")
_PLAIN_BACKWARD = Pattern(r"(?m)^[^\n#]*\bloss\w*\.backward\(")
# "else:" between the two steps chooses one of them
_EITHER = Pattern(r"(?ms)\bscaler\.step\([^\n]*\n(?:[^\n]*\n){0,4}?\s*else\s*:")
_IN_TRACE = words(r"-+> ?\d+ |❱|File \"")


def _find_misuse(text: Text) -> Iterator[Finding | Skip]:
    """Code that scales the loss and steps past the scaler, or steps with it and never scaled."""
    scales, steps, updates = text.find(_SCALES), text.find(_SCALER_STEPS), text.find(_UPDATES)
    shown = scales if scales is not None else steps
    # what a traceback shows of a loop is a line of it
    if shown is None or updates is None or text.find(_IN_TRACE):
        return
    plain, backward = text.find(_PLAIN_STEP), text.find(_PLAIN_BACKWARD)
    past = scales is not None and plain is not None and (steps is None or not text.find(_EITHER))
    unscaled = scales is None and backward is not None
    if past or unscaled:
        other = plain if past else backward
        assert other is not None
        both = (quote(shown, "scaler"), quote(other, "past it"))
        yield Finding(id="amp_scaler_misuse", confidence=0.72, evidence=tuple(dict.fromkeys(both)))


_CLIPS = words(r"\bclip_grad_(?:norm|value)_?\(")
_UNSCALES = words(r"\.unscale_\(|\bunscale_gradients\(|\baccelerator\.clip")


def _find_scaled_clip(text: Text) -> Iterator[Finding | Skip]:
    """Code that clips gradients while they are still multiplied by the scale: each is cut to next to nothing."""
    scales, clips, steps = text.find(_SCALES), text.find(_CLIPS), text.find(_SCALER_STEPS)
    if scales is None or clips is None or steps is None or text.find(_UNSCALES) or text.find(_IN_TRACE):
        return
    if scales.start < clips.start < steps.start:
        both = (quote(clips, "clipped"), quote(steps, "then stepped"))
        yield Finding(id="amp_scaler_misuse", confidence=0.6, evidence=tuple(dict.fromkeys(both)))


_ZERO_LOSS = Pattern(r"['\"]loss['\"]\s*:\s*['\"]?0(?:\.0+)?['\"]?\s*[,}]")
_MANY_ZEROS = 3


def _find_zeros(text: Text) -> Iterator[Finding | Skip]:
    """Losses of exactly zero in one step after the other: what overflowed was left out of them."""
    zeros = list(text.find_all(_ZERO_LOSS, most=20))
    mixed = text.find(_MIXED) if len(zeros) >= _MANY_ZEROS else None
    if mixed:
        yield Finding(
            id="fp16_overflow_nan",
            confidence=0.55,
            severity="warning",
            evidence=(quote(zeros[-1], "loss"), quote(mixed, "precision")),
        )


FINDERS = (
    by_text("amp_scaler_misuse", _find_misuse),
    by_text("amp_scaler_misuse", _find_scaled_clip),
    by_text("fp16_overflow_nan", _find_zeros),
)
