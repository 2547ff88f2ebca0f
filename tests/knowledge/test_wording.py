from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge import tables, wording
from gpudoc.knowledge.wording import HEALTHY, causes_known, tokens, weigh

ROOT = Path(__file__).resolve().parents[2]


def test_words_are_told_apart_as_the_table_has_them():
    assert tokens("num_workers=4, GPU 显存不足 x") == {"num_workers", "gpu", "显存", "不足"}


def test_every_cause_of_the_table_is_one_that_doctor_knows():
    assert HEALTHY in causes_known()
    assert set(causes_known()) - {HEALTHY} <= set(CATALOGUE)


def test_a_report_without_any_message_is_placed_by_its_words():
    found = weigh(
        "At the start of every epoch training pauses for half a minute until all the dataloader workers are there "
        "again, then it runs at full speed; with fewer workers the pause between epochs gets shorter."
    )
    assert found[0].cause == "workers_recreated_each_epoch"
    assert {"epoch", "workers"} <= set(found[0].words)
    assert sum(one.share for one in found) == pytest.approx(1.0)


def test_a_few_words_say_nothing():
    assert weigh("the gpu is slow") == []


@pytest.fixture
def learned(tmp_path, monkeypatch):
    """A table learned from made-up reports of three kinds, fifteen of each."""
    kinds = {
        "slow_storage": "images lie on a network share and every file is slow before batch {} of /home/gwendolyn/data",
        "thermal_throttle": "temperature climbs past ninety degrees and the fan is loud while clocks fall to half {}",
        "port_in_use": "address of the previous job was taken so rank zero could not listen and gave up {}",
    }
    for cause, text in kinds.items():
        for number in range(15):
            case = {"input": text.format(f"case{number}"), "cause": cause, "also_acceptable": []}
            (tmp_path / f"{cause}{number}.yaml").write_text(yaml.safe_dump(case))
    out = tmp_path / "learned" / wording.TABLE
    out.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "tools/learn_wording.py", str(tmp_path), "--out", str(out), "--folds", "3"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "45 reports: the right cause first in 100.0%" in done.stdout
    table = yaml.safe_load(out.read_text())
    caches = (wording._words, wording._bias)
    monkeypatch.setattr(tables, "_load", lambda name: table)
    for cache in caches:
        cache.cache_clear()
    yield table
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.mark.slow
def test_what_the_tool_learned_is_what_doctor_weighs(learned):
    assert learned["causes"] == ["port_in_use", "slow_storage", "thermal_throttle"]
    # what stands in too many reports, or in too few, is no word of the table
    assert not {"case3", "and"} & {row.split()[0] for row in learned["words"]}
    # a user's name stands in as many reports as other words, and is none
    assert {"network", "data"} <= {row.split()[0] for row in learned["words"]}
    assert "gwendolyn" not in {row.split()[0] for row in learned["words"]}
    found = weigh(
        "the fan is loud, clocks fall to half, and the temperature climbs past ninety degrees before the first batch "
        "is read from the slow share"
    )
    assert found[0].cause == "thermal_throttle"
    assert found[0].share > 0.9
    assert "fan" in found[0].words


def test_a_label_that_is_no_cause_is_named(tmp_path):
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"input": "slow", "cause": "gremlins"}))
    done = subprocess.run(
        [sys.executable, "tools/learn_wording.py", str(tmp_path), "--out", str(tmp_path / "out")],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "one.yaml: no such cause: gremlins" in done.stderr
