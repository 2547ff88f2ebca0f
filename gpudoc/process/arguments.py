"""A command line without some of its options, for the process that is started in place of this one."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def without(arguments: Sequence[str], *options: str, flags: Collection[str] = ()) -> list[str]:
    """The command line without `options`, which take a value ('--gpus 2', '--gpus=2'), and `flags`, which take none."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in options:
            if not equals:
                next(words, None)
        elif word not in flags:
            kept.append(word)
    return kept
