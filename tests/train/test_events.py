"""Events as objects of metrics.jsonl."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.train.events import Evaluated, Hung, Progressed, Rescued
from gpudoc.train.meter.meters import Split
from gpudoc.train.ranks.pace import Slow


def test_a_logged_step_has_the_fields_of_the_contract():
    event = Progressed(
        step=3,
        end_step=9,
        epoch=0.5,
        samples=96,
        loss=1.5,
        lr=0.1,
        samples_per_s=10.0,
        split=Split.of({}),
        memory_peak_bytes=7,
        grad_norm=0.2,
        scale=None,
        num_skipped=0,
    )
    assert set(event.document()) == {
        "step",
        "samples",
        "loss",
        "lr",
        "samples_per_s",
        "seconds",
        "memory_peak_bytes",
        "grad_norm",
        "scale",
    }
    slow = Slow(rank=2, step_s=0.3, others_s=0.2, where="computing", facts={"host": "n1"})
    told = replace(event, slow=slow).document()["slow"]
    assert (told["rank"], told["factor"], told["host"]) == (2, 1.5, "n1")


def test_evaluations_and_rescues_stand_under_their_own_key():
    found = Evaluated(step=4, loss=2.0, figures={"bits_per_byte": 2.9}, num_samples=5, seconds=1.0, best=True)
    assert found.document() == {"step": 4, "eval": {"loss": 2.0, "bits_per_byte": 2.9, "samples": 5}}
    rescued = Rescued(step=4, from_batch=8, to_batch=4, phase="train", shapes="float32[8]")
    assert rescued.document()["rescue"]["to_batch"] == 4


def test_a_hang_stands_under_its_own_key():
    hung = Hung(step=4, still_s=31.234, usual_s=0.1, ranks=(2,), call="collective 9 (vote)", at="data.py:3", say="x")
    assert hung.document()["step"] == 4
    told = hung.document()["hang"]
    assert (told["still_s"], told["ranks"], told["call"], told["stacks"]) == (31.2, [2], "collective 9 (vote)", [])
