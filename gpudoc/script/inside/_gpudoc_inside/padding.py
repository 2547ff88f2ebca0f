"""The share of a model's input that is padding beyond the longest sample of the batch."""

from __future__ import annotations

from typing import Any, Iterator

# a shorter input is not a sequence; the number of first steps that are looked at
_SHORTEST, _MOST_STEPS = 8, 200


class PaddedInputs:
    """Looks at the first call of a module in a step: how much of the sequences' end is one value in every sample."""

    def __init__(self) -> None:
        self._waits = False
        self._tails: dict[tuple[str, int], list[tuple[float, int | None]]] = {}
        self._steps = 0

    @property
    def found(self) -> list[list[Any]]:
        """File, line, the mean share, and the one whole number at the end, None if there are several.

        A line is left out if each batch has the same share, since padding varies.
        """
        rows = []
        for (file, line), tails in self._tails.items():
            shares = [share for share, _ in tails]
            values = {value for share, value in tails if share}
            if len(set(shares)) > 1:
                rows.append(
                    [file, line, round(sum(shares) / len(shares), 4), *(values if len(values) == 1 else [None])]
                )
        return rows

    def stepped(self) -> None:
        """Note that the next call of a module is the first of its step."""
        self._waits = self._steps < _MOST_STEPS

    def is_first(self) -> bool:
        """Whether this call of a module is the first of a step."""
        first, self._waits = self._waits, False
        return first

    def called(self, line: tuple[str, int], args: Any, torch: Any) -> None:
        """Record the tensors that a line gives to the model in one step."""
        self._steps += 1
        tails = [(tail, _end_of(value)) for value in _tensors(args, torch) if (tail := tail_of(value)) is not None]
        if tails:
            # a tensor without padding may be a mask or a table of positions; the sequence is the one with most padding
            self._tails.setdefault(line, []).append(max(tails, key=lambda tail: tail[0]))


def _tensors(value: Any, torch: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value[:16]:
            yield from _tensors(item, torch)
    elif isinstance(value, dict):
        for item in list(value.values())[:16]:
            yield from _tensors(item, torch)


def _end_of(value: Any) -> int | None:
    """The last value of a tensor of whole numbers; None for features."""
    return None if value.is_floating_point() or len(value.shape) > 2 else int(value.flatten()[-1])


def tail_of(value: Any) -> float | None:
    """The share of places, 0 to 1, at the end of a sequence where all samples have one and the same value.

    `value` holds whole numbers, (samples, places), or features, (samples, places, features). None for other shapes, for
    fewer than eight places, or for a single sample.
    """
    shape = tuple(value.shape)
    whole = not (value.is_floating_point() or value.is_complex() or value.dtype.is_signed is False)
    if not (len(shape) == 3 or (len(shape) == 2 and whole)) or shape[1] < _SHORTEST or shape[0] < 2:
        return None
    differs = (value != value[:1, -1:]).reshape(shape[0], shape[1], -1).any(2).any(0)
    places = differs.nonzero()
    last = int(places[-1]) if len(places) else -1
    return float(1 - (last + 1) / shape[1])
