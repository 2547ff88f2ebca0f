"""Products compared bit by bit: one flipped bit is another digest, and is counted."""

from __future__ import annotations

import torch

from gpudoc.fleet.digests import digest_products

CPU = torch.device("cpu")


def test_the_same_product_has_one_digest_however_often():
    seen = dict(digest_products(CPU, 32, 0.02))
    assert set(seen) == {"mm fp32 32", "mm bf16 32"}
    assert all(len(digests) == 1 and sum(digests.values()) >= 3 for digests in seen.values())
    assert {name: set(one) for name, one in digest_products(CPU, 32, 0.02)} == {
        name: set(d) for name, d in seen.items()
    }


def test_one_bit_that_is_wrong_once_is_seen(monkeypatch):
    right, calls = torch.mm, []

    def wrong(left, right_, out=None):
        result = right(left, right_, out=out) if out is not None else right(left, right_)
        calls.append(1)
        if len(calls) == 2:
            result.view(torch.uint8).view(-1)[0] ^= 1
        return result

    monkeypatch.setattr(torch, "mm", wrong)
    name, seen = next(digest_products(CPU, 32, 0.0))
    assert name == "mm fp32 32"
    # not the first one, and not those after it
    assert sorted(seen.values()) == [1, 2]
