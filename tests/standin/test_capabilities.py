"""A card of each compute capability: doctor sees it, and a training takes the 16 bits that it has."""

from __future__ import annotations

import json

import pytest

from tests.train.support import write_workload

pytestmark = pytest.mark.standin


@pytest.mark.parametrize(
    ("cc", "precision"),
    [
        ("6.1", "fp16"), ("7.0", "fp16"), ("7.5", "fp16"), ("8.7", "bf16"),
        ("10.3", "bf16"), ("11.0", "bf16"), ("12.0", "bf16"), ("12.1", "bf16"),
    ],
)  # fmt: skip
def test_a_card_is_seen_as_it_is_and_trains_in_its_own_format(standin, tmp_path, cc, precision):
    config = write_workload(tmp_path, precision="auto")
    gpus = standin(memory="2G", cc=cc)
    line = ("--model", str(config), "--profile", "off", "--device", "cuda", "--steps", "2", "--no-preflight", "--plain")
    done = gpus.forked("train", *line, "--run-dir", "run")
    assert done.returncode == 0, done.stderr
    assert f"cuda:0, {precision}, " in done.stderr + done.stdout
    seen = json.loads(gpus.gpudoc("doctor", "--quick", "--json").stdout)
    assert seen["facts"]["gpus"][0]["capability"] == [int(part) for part in cc.split(".")]
