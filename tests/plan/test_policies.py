"""The cheapest policy that fits, out of plans whose bytes and operations are planted."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpudoc.knowledge.cards import require_card
from gpudoc.plan.memory import WorkModel
from gpudoc.plan.policies import Question, cheapest
from gpudoc.plan.tape import Work

CARD = require_card("A100 80GB")
BLOCKS = 32


@dataclass(frozen=True)
class Planted:
    """What `cheapest` looks at of a plan."""

    peak_bytes: int
    work: WorkModel


@dataclass
class Model:
    """Each of its blocks keeps 100 bytes, of which 60 are no product's, and repeats a tenth of its step."""

    limit_bytes: int
    is_selective: bool = True
    num_blocks: int = BLOCKS
    card: object = CARD
    repeated_bytes: int = 10**9
    asked: list = field(default_factory=list)

    def plan_of(self, policy):
        self.asked.append(policy)
        match policy:
            case False:
                saved, flops, moved = 0, 0, 0
            case True:
                saved, flops, moved = 100 * BLOCKS, 10**12 * BLOCKS, 10**9 * BLOCKS
            case "selective":
                saved, flops, moved = 60 * BLOCKS, 0, self.repeated_bytes * BLOCKS
            case _:
                count = int(policy.removeprefix("blocks:"))
                saved, flops, moved = 100 * count, 10**12 * count, 10**9 * count
        works = (Work("mm", "bfloat16", 10**13 * BLOCKS + flops, 0), Work("gelu", "bfloat16", 0, 10**9 + moved))
        return Planted(1000 + 100 * BLOCKS - saved, WorkModel(batches=(1, 2), works=(works, works)))

    def answer(self):
        return cheapest(
            Question(
                plan_of=self.plan_of,
                left_bytes=lambda plan: self.limit_bytes - plan.peak_bytes,
                is_selective=self.is_selective,
                num_blocks=self.num_blocks,
                batch=1,
                card=self.card,
            )
        )


def test_as_many_blocks_as_needed_where_that_repeats_less_than_all_that_is_no_product():
    model = Model(limit_bytes=1000 + 100 * BLOCKS - 250)
    found = model.answer()
    assert found.policy == "blocks:3"
    assert 1 < found.slowdown < 1 + 0.2 * 3 / BLOCKS


def test_what_is_no_product_where_as_many_blocks_would_repeat_more():
    model = Model(limit_bytes=1000 + 40 * BLOCKS)
    found = model.answer()
    assert found.policy == "selective"
    # 60 of 100 bytes by whole blocks are 20 of 32
    assert 1 < found.slowdown < 1.1 * 20 / BLOCKS + 1


def test_what_is_no_product_loses_where_reading_and_writing_it_takes_longer_than_the_products():
    assert Model(limit_bytes=1000 + 40 * BLOCKS, repeated_bytes=10**12).answer().policy == "blocks:20"


def test_without_a_card_operations_decide():
    found = Model(limit_bytes=1000 + 100 * BLOCKS - 250, card=None).answer()
    assert (found.policy, found.slowdown) == ("selective", 1.0)


def test_where_a_part_is_not_enough_every_block_is_recomputed():
    assert Model(limit_bytes=1000).answer().policy is True


def test_what_a_model_does_not_allow_is_not_asked_for():
    model = Model(limit_bytes=1000 + 99 * BLOCKS, is_selective=False, num_blocks=0)
    assert model.answer().policy is True
    assert model.asked == [False, True]


@pytest.mark.parametrize("limit_bytes", [999, 1000 + 100 * BLOCKS])
def test_nothing_where_no_policy_is_enough_and_where_none_is_needed(limit_bytes):
    assert Model(limit_bytes=limit_bytes).answer() is None


def test_blocks_that_are_alike_take_few_plans_however_many_there_are():
    model = Model(limit_bytes=1000 + 100 * BLOCKS - 1650, is_selective=False)
    assert model.answer().policy == "blocks:17"
    assert len(set(model.asked)) <= 5
