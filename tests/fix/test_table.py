"""The table of scripts whose flaw is known: its labels fit the scripts, and it counts what was right."""

import importlib.util
import shutil
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "campaigns" / "fix_scripts"
LABELS = yaml.safe_load((SCRIPTS / "labels.yaml").read_text())
FLAW = {"script": "a.py", "kind": "flaw", "rewrites": ["anomaly-off"], "lines": [10], "must_not": ["create_graph"]}


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("campaign_fix", ROOT / "campaigns" / "fix.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def change(rewrite="anomaly-off", line=10, proof="2.00 times as fast (1.90 to 2.10)", why=""):
    return {
        "rewrite": rewrite, "line": line, "claim": "exact", "proof": proof, "why": why, "gain": (2.0, 1.9, 2.1),
        "steps": 9, "digested": None,
    }  # fmt: skip


def row(accepted=(), lost=(), refused=(), diff="", **more):
    document = {"accepted": [*accepted], "lost": [*lost], "refused": [*refused], "diff": diff, "notes": []}
    return {"script": "a.py", "document": document, "seconds": 1.0, "untouched": True, "load": 0.0, **more}


def test_each_script_has_a_label_and_its_lines_are_in_it():
    assert {one["script"] for one in LABELS} == {path.name for path in SCRIPTS.glob("*.py")}
    kinds = [one["kind"] for one in LABELS]
    assert [kinds.count(kind) for kind in ("flaw", "healthy", "trap")] == [62, 17, 15]
    for one in LABELS:
        length = len((SCRIPTS / one["script"]).read_text().splitlines())
        assert one["by"] in ("blind", "knowing")
        assert all(1 <= line <= length for line in one.get("lines", []))
        assert bool(one.get("lines")) == (one["kind"] == "flaw")


def test_what_rewrites_the_labels_name_is_known():
    from gpudoc.fix.rewrites import REWRITES

    known = {rewrite.id for rewrite in REWRITES}
    assert {name for one in LABELS for name in one.get("rewrites", [])} <= known


def test_a_change_at_the_labelled_line_is_right_and_one_elsewhere_is_not(table):
    assert table.judge(row([change(line=12)]), FLAW)["patch"]
    elsewhere = table.judge(row([change(line=30)]), FLAW)
    assert (elsewhere["cause"], elsewhere["patch"], elsewhere["others"]) == (False, False, ["anomaly-off"])


def test_what_was_tried_names_the_cause_and_what_was_refused_is_counted_apart(table):
    tried = table.judge(row(lost=[change(why="too slow")]), FLAW)
    assert (tried["cause"], tried["patch"], tried["why"]) == (True, False, "tried: too slow")
    refused = table.judge(row(refused=[{"rewrite": "anomaly-off", "line": 10, "reason": "a try"}]), FLAW)
    assert (refused["cause"], refused["seen"], refused["why"]) == (False, True, "refused: a try")
    assert table.judge(row(), FLAW)["why"] == "not proposed"


def test_padding_is_named_at_the_line_that_gives_it_to_the_model(table):
    named = row()
    named["document"]["padding"] = [{"line": 10}]
    assert table.judge(named, {**FLAW, "padding": True})["cause"]
    assert not table.judge(named, FLAW)["cause"]
    assert not table.judge(named, {**FLAW, "padding": True, "lines": [11]})["cause"]


def test_a_flaw_that_is_a_loop_is_named_by_a_loop_that_holds_it(table):
    named = row()
    named["document"]["loops"] = [{"line": 8, "last_line": 11}]
    assert not table.judge(named, FLAW)["cause"]
    assert table.judge(named, {**FLAW, "loop": True})["cause"]
    assert not table.judge(named, {**FLAW, "loop": True, "lines": [12]})["cause"]


def test_a_forbidden_line_another_output_or_a_failure_makes_a_change_wrong(table):
    added = table.judge(row([change()], diff="--- a\n+++ b\n+ f(create_graph=False)\n"), FLAW)
    assert (added["patch"], added["wrong"]) == (False, True)
    assert not table.judge(row([change()], diff="--- a\n+++ b\n- f(create_graph=False)\n"), FLAW)["wrong"]
    for again in ({"same_output": False, "codes": [0, 0]}, {"same_output": True, "codes": [0, 1]}):
        assert table.judge(row([change()], rerun=again), FLAW)["wrong"]
    assert table.judge(row([change()], rerun={"same_output": True, "codes": [0, 0]}), FLAW)["patch"]


def test_a_script_that_dies_of_memory_has_to_live_with_the_change(table):
    limited = {**FLAW, "limit_bytes": 1 << 29}
    assert table.judge(row([change()], rerun={"same_output": False, "codes": [1, 0]}), limited)["patch"]
    assert table.judge(row([change()], rerun={"same_output": False, "codes": [1, 1]}), limited)["wrong"]


def test_a_repeated_gain_lies_in_the_printed_interval_or_not(table):
    again = {"same_output": True, "codes": [0, 0], "steps": 9}
    assert table.lies(row([change()], rerun={**again, "gain": 2.05})) is True
    assert table.lies(row([change()], rerun={**again, "gain": 2.2})) is False
    assert table.lies(row([change(proof="peak memory 1 MiB, 2 MiB before")], rerun={**again, "gain": 2.05})) is None


def test_a_folder_is_another_one_after_any_change(table, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    before = table.digest(tmp_path)
    shutil.copy(tmp_path / "a.py", tmp_path / "b.py")
    assert table.digest(tmp_path) != before
    (tmp_path / "b.py").unlink()
    assert table.digest(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert table.digest(tmp_path) != before


@pytest.mark.parametrize(("digested", "seconds"), [(0, 2.0), (7, 1.0)])
def test_a_repeated_proof_times_the_steps_that_the_proof_timed(table, digested, seconds):
    # the first seven steps fill what the later ones find
    times = [0.0, 3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 19.0, 20.0, 21.0, 22.0]
    part, _ = table.span_of([(at, 1) for at in times], 8, digested)
    assert part == seconds


def test_a_repeated_proof_runs_both_scripts_and_compares_what_they_print(table, tmp_path, monkeypatch):
    text = (
        "import sys, time\nimport torch\nw = torch.zeros(1, requires_grad=True)\n"
        "opt = torch.optim.SGD([w], lr=0.1)\nfor step in range(12):\n    time.sleep(0)\n"
        "    (w - 1).pow(2).sum().backward()\n    opt.step()\n"
        "print(f'{w.item():.4f} (1.2s)' if len(sys.argv) == 1 else sys.argv[1:])\n"
    )
    (tmp_path / "a.py").write_text(text)
    monkeypatch.setattr(table, "SCRIPTS", tmp_path)
    diff = "--- a/a.py\n+++ b/a.py\n@@ -6,1 +6,1 @@\n-    time.sleep(0)\n+    time.sleep(0.0)\n"
    again = table.repeat("a.py", FLAW, {"diff": diff, "accepted": [{**change(), "steps": 5}]})
    assert (again["codes"], again["same_output"], again["steps"]) == ([0, 0], True, 5)
    assert again["low"] <= again["gain"] <= again["high"]
    other = diff.replace("+    time.sleep(0.0)", "+    w.data += 1")
    # the changed script is started with the variables that fix names, the other one without them
    told = diff.replace("+    time.sleep(0.0)", "+    print(__import__('os').environ['NEEDED'])")
    document = {"diff": told, "accepted": [{**change(), "steps": 5}]}
    assert table.repeat("a.py", FLAW, {**document, "environment": {"NEEDED": "1"}})["codes"] == [0, 0]
    # under a limit each script runs once
    limited = {**FLAW, "limit_bytes": 1 << 36}
    assert not table.repeat("a.py", limited, {"diff": other, "accepted": [{**change(), "steps": 5}]})["same_output"]
