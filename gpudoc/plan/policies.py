"""How much of the activations to compute again for the memory that is needed: of what reaches it, the cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoc.knowledge.cards import KnownCard
from gpudoc.plan.memory import largest_near
from gpudoc.plan.planning import Plan
from gpudoc.plan.roofline import StepCost, slowdown
from gpudoc.policy import SELECTIVE, Policy, of_blocks


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a policy is looked for: the model's plans, its policies, and the bytes a plan leaves of the memory.

    `plan_of` gives None for a policy that the model does not allow; `left_bytes` is below zero for a plan that does not
    fit. The step's cost is that of `batch` samples on `card`, or its operations alone where there is none.
    """

    plan_of: Callable[[Policy], Plan | None]
    left_bytes: Callable[[Plan], int]
    is_selective: bool
    num_blocks: int
    batch: int
    card: KnownCard | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The cheapest policy that fits, and how many times the plain step's time it takes at the least."""

    policy: Policy
    slowdown: float


def cheapest(question: Question) -> Answer | None:
    """The cheapest policy that fits; None where the plain step fits, or not even recomputing every block is enough."""
    plain, whole = question.plan_of(False), question.plan_of(True)
    if plain is None or whole is None:
        return None
    left, missing = question.left_bytes(whole), -question.left_bytes(plain)
    if left < 0 or missing <= 0:
        return None
    before = _cost(question, plain)
    # a line between none and all says about how many are enough
    guess = question.num_blocks * left // (left + missing)
    fitting = [*_parts(question, guess), (True, whole)]
    costs = [_cost(question, plan) for _, plan in fitting]
    # bytes decide between policies that repeat the same operations, and between equal ones the simpler, which is last
    ranked = [(_slowdown(question, before, cost), _moved(cost)) for cost in costs]
    place = min(reversed(range(len(ranked))), key=lambda index: ranked[index])
    return Answer(policy=fitting[place][0], slowdown=ranked[place][0])


def _parts(question: Question, guess: int) -> Iterator[tuple[Policy, Plan]]:
    """Of each kind of policy the cheapest that fits, with its plan; about `guess` blocks may keep all."""
    if question.num_blocks > 1:
        number = _fewest_blocks(question, guess)
        plan = question.plan_of(of_blocks(number)) if number < question.num_blocks else None
        if plan is not None:
            yield of_blocks(number), plan
    plan = question.plan_of(SELECTIVE) if question.is_selective else None
    if plan is not None and question.left_bytes(plan) >= 0:
        yield SELECTIVE, plan


def _fewest_blocks(question: Question, guess: int) -> int:
    """The fewest blocks whose recomputation is enough; all where that is so of no part."""
    most = question.num_blocks - 1

    def fits(kept: int) -> bool:
        plan = question.plan_of(of_blocks(question.num_blocks - kept))
        return plan is not None and question.left_bytes(plan) >= 0

    return question.num_blocks - largest_near(fits, min(most, max(1, guess)), most)


def _cost(question: Question, plan: Plan) -> StepCost:
    return StepCost(works=tuple(plan.work.at(question.batch)), num_samples=question.batch)


def _slowdown(question: Question, before: StepCost, cost: StepCost) -> float:
    found = slowdown(before, cost, question.card, 1)
    # without a card and without a product all that is known is what moves
    return _moved(cost) / max(1, _moved(before)) if found is None else found


def _moved(cost: StepCost) -> int:
    return sum(work.moved_bytes for work in cost.works)
