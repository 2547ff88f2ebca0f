"""How much of the activations to recompute: the cheapest policy that saves enough memory."""

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
    """The input of a search for a policy: the model's plans, its policies, and the memory that a plan leaves.

    `plan_of` gives None for a policy that the model does not allow; `left_bytes` is below zero for a plan that does not
    fit. The step's cost is that of `batch` samples on `card`, or only its operations if there is no card.
    """

    plan_of: Callable[[Policy], Plan | None]
    left_bytes: Callable[[Plan], int]
    is_selective: bool
    num_blocks: int
    batch: int
    card: KnownCard | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The cheapest policy that fits, and at least how many times the plain step's time it takes."""

    policy: Policy
    slowdown: float


def cheapest(question: Question) -> Answer | None:
    """The cheapest policy that fits; None if the plain step fits, or if not even recomputing every block is enough."""
    plain, whole = question.plan_of(False), question.plan_of(True)
    if plain is None or whole is None:
        return None
    left, missing = question.left_bytes(whole), -question.left_bytes(plain)
    if left < 0 or missing <= 0:
        return None
    before = _cost(question, plain)
    # interpolating between no blocks and all gives about how many may keep their activations
    guess = question.num_blocks * left // (left + missing)
    fitting = [*_parts(question, guess), (True, whole)]
    costs = [_cost(question, plan) for _, plan in fitting]
    # moved bytes decide between policies that repeat the same operations; the simpler one, which is last, wins a tie
    ranked = [(_slowdown(question, before, cost), _moved(cost)) for cost in costs]
    place = min(reversed(range(len(ranked))), key=lambda index: ranked[index])
    return Answer(policy=fitting[place][0], slowdown=ranked[place][0])


def _parts(question: Question, guess: int) -> Iterator[tuple[Policy, Plan]]:
    """The cheapest fitting policy of each kind, with its plan; about `guess` blocks may keep all activations."""
    if question.num_blocks > 1:
        number = _fewest_blocks(question, guess)
        plan = question.plan_of(of_blocks(number)) if number < question.num_blocks else None
        if plan is not None:
            yield of_blocks(number), plan
    plan = question.plan_of(SELECTIVE) if question.is_selective else None
    if plan is not None and question.left_bytes(plan) >= 0:
        yield SELECTIVE, plan


def _fewest_blocks(question: Question, guess: int) -> int:
    """The fewest blocks whose recomputation is enough; all blocks if no part is enough."""
    most = question.num_blocks - 1

    def fits(kept: int) -> bool:
        plan = question.plan_of(of_blocks(question.num_blocks - kept))
        return plan is not None and question.left_bytes(plan) >= 0

    return question.num_blocks - largest_near(fits, min(most, max(1, guess)), most)


def _cost(question: Question, plan: Plan) -> StepCost:
    return StepCost(works=tuple(plan.work.at(question.batch)), num_samples=question.batch)


def _slowdown(question: Question, before: StepCost, cost: StepCost) -> float:
    found = slowdown(before, cost, question.card, 1)
    # without a card and without a product, only the moved bytes are known
    return _moved(cost) / max(1, _moved(before)) if found is None else found


def _moved(cost: StepCost) -> int:
    return sum(work.moved_bytes for work in cost.works)
