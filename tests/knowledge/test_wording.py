from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge import wording
from gpudoc.knowledge.tables import FOLDER
from gpudoc.knowledge.wording import HEALTHY, OTHER, features, load, table, tokens, weigh
from tools import learn_wording

ROOT = Path(__file__).resolve().parents[2]


def test_words_are_told_apart_as_the_table_has_them():
    assert tokens("num_workers=4, GPU 显存不足 x") == ["num_workers", "gpu", "显存", "存不", "不足"]
    assert tokens("видеокарта видеокарты") == ["видеок", "видеок"]


def test_a_text_is_its_words_and_its_facts():
    words, facts = features("the gpu is slow", ["torch.is_available:False"])
    assert words == {"the", "gpu", "is", "slow"}
    assert facts == {"=torch.is_available:False"}


def test_every_answer_of_the_table_is_a_cause_that_doctor_knows_or_none():
    causes = set(table().causes)
    assert {HEALTHY, OTHER} <= causes
    assert causes - {HEALTHY, OTHER} <= set(CATALOGUE)


def test_every_feature_of_the_table_is_a_word_or_a_fact_and_every_weight_speaks():
    assert [name for name in table().rows if " " in name] == []
    least = {False: 1.0, True: 1.0}
    for name, row in table().rows.items():
        rarity, weights = wording.parsed(row)
        for _, weight in weights:
            is_fact = name.startswith(wording.FACT)
            least[is_fact] = min(least[is_fact], abs(weight) * rarity * math.exp(-rarity))
    # a report has few facts, so that each says more; the table's numbers are rounded
    assert least[False] == pytest.approx(0.075, abs=0.003)
    assert least[True] == pytest.approx(0.0075, abs=0.003)


def test_the_table_says_what_it_was_learned_from():
    listed = ROOT / "tools" / "wording" / "reports.tsv"
    rows = [row.split("\t") for row in listed.read_text("utf-8").splitlines()]
    assert table().manifest["list"] == hashlib.sha256(listed.read_bytes()).hexdigest()
    assert int(table().manifest["reports"].split(",")[0]) == len(rows)
    assert all(len(row) == 4 and len(row[3]) == 64 for row in rows)
    assert {"learned", "held back", "how sure", "how sure doctor is", "began", "figures"} <= table().manifest.keys()


def test_doctor_was_right_as_often_as_it_says_on_reports_that_it_had_not_seen():
    bins = re.findall(r"([\d.]+)% sure, ([\d.]+)% right of (\d+)", table().manifest["how sure doctor is"])
    assert sum(int(count) for _, _, count in bins) > 1000
    # of a few reports the share that is right is a matter of chance
    off = {said: abs(float(said) - float(right)) for said, right, count in bins if int(count) >= 50}
    assert len(off) >= 4
    assert max(off.values()) <= 5, off


def test_a_finding_is_shown_surer_the_surer_its_finder_and_its_words_are_and_never_beyond_99_percent():
    weights = table().shown
    assert weights != (1, 0, 0)
    for sure in (None, 0.0, 0.1, 0.5, 0.9, 1.0):
        shown = [wording.shown_as(confidence, sure, weights) for confidence in (0.0, 0.3, 0.5, 0.8, 0.95, 1.0)]
        assert shown == sorted(set(shown)) or shown[-1] == shown[-2] == 0.99
        assert 0 <= shown[0] < shown[-1] <= 0.99
    by_words = [wording.shown_as(0.8, sure, weights) for sure in (0.02, 0.1, 0.5, 0.9)]
    assert by_words == sorted(set(by_words))
    # hardly a report had words that speak more against a finding than 2 %
    assert wording.shown_as(0.8, 0.0, weights) == by_words[0]
    assert wording.shown_as(0.8, None, (1, 0, 0)) == pytest.approx(0.8)


def test_how_sure_an_answer_is_grows_with_its_share_and_is_what_held_back_reports_showed():
    shares = [0.0, 0.1, 0.5, 0.9, 1.0]
    sure = [wording.sure_of(share, (0.5, 0.2)) for share in shares]
    assert sure == sorted(sure)
    assert wording.sure_of(0.5, (0.5, 0.0)) == pytest.approx(0.5)
    assert wording.sure_of(0.5, (0.5, 1.0)) > 0.5


def test_a_fact_speaks_beside_the_words():
    text = (
        "why is it so slow on this machine since the last update of the driver and torch, what can i do about it; the "
        "gpu is there, training runs and takes hours for every epoch"
    )
    before = {one.cause: one.share for one in weigh(text)}
    after = {one.cause: one.share for one in weigh(text, ["torch.is_available:False"])}
    assert before != after


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
    reports = tmp_path / "reports.tsv"
    old = {"input": "seen before, case0", "cause": "port_in_use"}
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(old))
    reports.write_text(f"an address\tport_in_use\t\t{hashlib.sha256(old['input'].encode()).hexdigest()}\n")
    options = ("--reports", str(reports), "--out", str(out), "--folds", "3")
    done = learn(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    assert f"1 reports are in {reports} and are left out" in done.stdout
    assert "held back: right first 100.0%" in done.stdout
    assert "how sure doctor is of the new ones: " in done.stdout
    rows = reports.read_text()
    assert len(rows.splitlines()) == 46
    assert "gwendolyn" not in rows
    again = learn(tmp_path, *options)
    assert again.returncode == 1
    assert f"nothing to learn from: {reports} has every report" in again.stderr
    monkeypatch.setattr(wording, "table", lambda: load(out))
    return load(out)


@pytest.mark.slow
def test_what_the_tool_learned_is_what_doctor_weighs(learned):
    table_of_before = load(FOLDER / wording.TABLE).rows.keys()
    assert {"port_in_use", "slow_storage", "thermal_throttle"} <= set(learned.causes)
    # a word of one report is none of the table; the words that were known before stay, and no pair becomes one
    assert "case3" not in learned.rows
    assert table_of_before <= learned.rows.keys()
    assert [name for name in learned.rows if " " in name] == []
    assert learned.manifest["reports"].startswith("46,")
    # a user's name stands in as many reports as other words, and is none
    assert "gwendolyn" not in learned.rows
    found = weigh(
        "the fan is loud, clocks fall to half, and the temperature climbs past ninety degrees before the first batch "
        "is read from the slow share; with this gpu the model and its memory are fine in training, no error is shown"
    )
    assert found[0].cause == "thermal_throttle"
    assert "fan" in found[0].words


@pytest.mark.slow
def test_a_message_that_stops_nothing_is_right_of_a_healthy_report(tmp_path):
    said = "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`."
    for number in range(4):
        case = {"input": f"{said} It appears in epoch {number}.", "cause": "healthy"}
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(case))
    done = learn(tmp_path, "--reports", str(tmp_path / "list"), "--out", str(tmp_path / "out"), "--folds", "2")
    assert done.returncode == 0, done.stderr
    assert re.search("how sure doctor is of the new ones: .* sure, 100.0% right of 4$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_posts_teach_words_and_judge_nothing(tmp_path):
    """With a post's cause for a word that no report holds, a text of that word is placed; figures are of reports."""
    said = "the zorblax of the shelf rattles, its lamp blinks twice and whatever we start afterwards never begins {}"
    told = "training is slow, the images lie on a network share and each file takes long"
    case = {"input": told, "cause": "slow_storage"}
    for number in range(8):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump({**case, "input": f"{told} {number}"}))
    posts = tmp_path / "posts"
    posts.mkdir()
    (posts / "gpu_power_missing.txt").write_text("\n%%%\n".join(said.format(f"today {n}") for n in range(6)) + "\n")
    out = tmp_path / "out"
    options = ("--reports", str(tmp_path / "list"), "--out", str(out), "--folds", "2", "--posts", str(posts))
    done = learn(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    table = load(out)
    place = table.causes.index("gpu_power_missing")
    assert dict(wording.parsed(table.rows["zorblax"])[1])[place] > 0
    assert table.manifest["figures"].startswith("of 8 new reports")
    assert len((tmp_path / "list").read_text().splitlines()) == 8
    (posts / "gremlins.txt").write_text("slow\n")
    (tmp_path / "new.yaml").write_text(yaml.safe_dump({**case, "input": "one more"}))
    refused = learn(tmp_path, *options)
    assert refused.returncode == 1
    assert "no such cause: gremlins" in refused.stderr


@pytest.mark.slow
def test_the_posts_are_of_causes_and_no_two_are_alike():
    posts = learn_wording.read_posts(learn_wording.POSTS)
    assert len(posts) > 1500
    assert len({post.digest for post in posts}) == len(posts)


def test_a_label_that_is_no_cause_is_named(tmp_path):
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"input": "slow", "cause": "gremlins"}))
    done = learn(tmp_path, "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "one.yaml: no such cause: gremlins" in done.stderr


def learn(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The tool over a folder, without the posts that the project's own table is learned from."""
    posts = () if "--posts" in options else ("--posts", str(folder / "no posts"))
    return subprocess.run(
        [sys.executable, "tools/learn_wording.py", str(folder), *posts, *options],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
