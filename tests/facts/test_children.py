from __future__ import annotations

import subprocess
import sys
import time

from gpudoc.facts.children import Child, listen, start_worker


def child(code: str, deadline_s: float = 20.0) -> Child:
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    return Child(name="x", process=process, deadline_s=deadline_s)


def heard(one: Child) -> Child:
    listen([one], lambda _: None)
    return one


def test_facts_and_items_are_kept_with_their_paths():
    one = heard(child("""print('{"fact": ["a", "b"], "value": 1}\\n{"item": ["c"], "value": 2}\\n{"end": true}')"""))
    assert one.facts == [(("a", "b"), 1, False), (("c",), 2, True)]
    assert (one.failure, one.timed_out) == ("", False)


def test_what_a_library_prints_is_passed_over():
    one = heard(child("""print('WARNING: hello\\n[1, 2]\\n{"end": true}')"""))
    assert (one.facts, one.failure) == ([], "")


def test_an_early_end_names_code_and_question():
    one = heard(child("""print('{"begin": "cuInit"}', flush=True); raise SystemExit(3)"""))
    assert one.failure == "ended with code 3 while asking: cuInit"


def test_a_child_is_answered_on_its_input():
    code = """line = input(); print('{"fact": ["x"], "value": ' + line + '}\\n{"end": true}', flush=True)"""
    one = child(code)
    one.answer("[0, 1]")
    heard(one)
    assert one.facts == [(("x",), [0, 1], False)]


def test_answering_a_child_that_is_gone_is_no_error():
    one = child("pass")
    heard(one)
    one.answer("[]")


def test_a_flood_is_cut_off():
    one = heard(child("while True: print('x' * 1000000)"))
    assert one.failure == "said more than 64 MiB"


def test_the_nearest_deadline_counts_for_each():
    slow, quick = child("import time; time.sleep(600)", 0.6), child("""print('{"end": true}')""")
    ends: list[tuple[str, bool]] = []
    quick.name = "quick"
    listen([slow, quick], lambda one: ends.append((one.name, one.timed_out)))
    assert ends == [("quick", False), ("x", True)]


def test_nothing_stays_behind(tmp_path):
    one = start_worker("files", ("host",), tmp_path, 20.0)
    heard(one)
    for _ in range(100):
        if one.process.poll() is not None:
            return
        time.sleep(0.05)
    raise AssertionError("the worker still runs")
