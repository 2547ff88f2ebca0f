"""Activation checkpointing as documents and flags name it: nothing, everything, or the part that the memory needs."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field

from gpudoc.patterns import Pattern

SELECTIVE = "selective"
_FORM = r"selective|blocks:[1-9][0-9]{0,8}"

# False keeps all activations, True computes every repeated block again in backward. 'selective' computes each block
# again except for its products (matrix products, convolutions, attention), whose results are kept; 'blocks:K' computes
# all of the first K blocks again.
Policy = Union[bool, Annotated[str, Field(pattern=f"^({_FORM})$")]]


def parse(text: str) -> Policy:
    """A policy by its name; ValueError for anything else than 'selective' and 'blocks:K'."""
    if not Pattern(_FORM).fullmatch(text):
        raise ValueError(f"{text!r} is neither selective nor blocks:K")
    return text


def of_blocks(number: int) -> Policy:
    """The policy that computes the first `number` blocks again."""
    return f"blocks:{number}"


def num_blocks(policy: Policy) -> int | None:
    """How many blocks are computed again in full; None if the policy names no number."""
    return int(policy.removeprefix("blocks:")) if isinstance(policy, str) and policy != SELECTIVE else None


def spares_more(policy: Policy, other: Policy) -> bool:
    """Whether `policy` surely keeps less than `other`: recomputing every block beats a part, and a part beats none."""
    return _rank(policy) > _rank(other)


def in_words(policy: Policy, total: int | None = None) -> str:
    """What is computed again, for a sentence; `total` is the number of the model's blocks if it is known."""
    number = num_blocks(policy)
    if number is not None:
        return f"activation checkpointing of {number} {'blocks' if total is None else f'of {total} blocks'}"
    return "selective activation checkpointing" if policy == SELECTIVE else "activation checkpointing of every block"


def _rank(policy: Policy) -> int:
    return 1 if isinstance(policy, str) else 2 * policy
