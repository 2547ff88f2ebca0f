import math

import pytest
import torch

from gpudoc.workload.quickstart import Text, baselines, build_model, source_text


def test_the_text_is_python_source_and_the_splits_do_not_overlap():
    train, held_out = source_text("train"), source_text("held_out")
    assert b"def " in train[: 1 << 16]
    assert len(train) > 10 * len(held_out) > 0
    probe = bytes(held_out[2000:2200])
    assert probe not in train


def test_targets_are_the_inputs_one_byte_later():
    text = Text(context=16)
    first, second = text[0], text[1]
    assert first["inputs"].dtype == torch.int64
    assert first["inputs"].shape == first["targets"].shape == (16,)
    assert first["inputs"][1:].equal(first["targets"][:-1])
    assert first["targets"][-1] == second["inputs"][0]


def test_the_text_ends_where_its_length_says():
    text = Text(context=64, split="held_out", limit=10)
    assert len(text) == 10
    with pytest.raises(IndexError):
        text[10]


def test_the_baselines_are_those_of_the_very_bytes():
    random_text = bytes(torch.randint(0, 256, (40_000,), dtype=torch.uint8).tolist())
    figures = baselines(random_text)
    assert figures["byte_frequencies_bits_per_byte"] == pytest.approx(8, abs=0.01)
    assert figures["zlib_bits_per_byte"] >= 8
    assert baselines(b"ab" * 20_000)["byte_frequencies_bits_per_byte"] == pytest.approx(1)


def test_a_report_turns_nats_into_bits():
    report = Text(context=32, split="held_out", limit=50).report(math.log(2) * 3)
    assert report["bits_per_byte"] == pytest.approx(3)
    assert 1 < report["zlib_bits_per_byte"] < 8


def test_an_untrained_model_knows_nothing_and_a_trained_one_more():
    torch.manual_seed(0)
    model = build_model(hidden_dim=32, n_layers=1, n_heads=2, context=32)
    text = Text(context=32)
    batch = torch.utils.data.default_collate([text[i] for i in range(32)])
    before = model(**batch)["loss"]
    assert before.item() == pytest.approx(math.log(256), rel=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(30):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < before.item() - 1.5


def test_no_byte_sees_the_bytes_after_it():
    model = build_model(hidden_dim=32, n_layers=2, n_heads=2, context=16).eval()
    inputs = torch.randint(0, 256, (1, 16))
    changed = inputs.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 256
    kept_targets = torch.full((1, 16), -100)
    kept_targets[0, :-1] = 7
    assert model(inputs, kept_targets)["loss"].equal(model(changed, kept_targets)["loss"])


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="not a multiple"):
        build_model(hidden_dim=30, n_heads=4)
