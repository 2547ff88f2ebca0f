"""The lines where a script's steps spend their time, and those that keep what a step leaves behind."""

from types import SimpleNamespace

import pytest

from gpudoc.script.inside._gpudoc_inside.sampling import _lines, weight_of
from gpudoc.script.messages import HookOrder
from tests.script.watched import watch_text

ORDER = HookOrder(purpose="look", lines=True)
TRAIN = """
import time
kept, total, plain = [], 0.0, 0.0

def slow():
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass

def evaluate():
    model.eval()
    for x, y in DataLoader(Rows(), 8):
        model(x).sum().item()
    model.train()

for epoch in range(6):
    for x, y in DataLoader(Rows(), 8, shuffle=True):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        total = total + loss
        kept.append(loss)
        plain += loss.item()
        slow()
    evaluate()
"""

ALTERNATING = """
import time

def count(words):
    for _ in range(20_000):
        words += 1
    return words

weights, words, python, began = torch.ones(100, 100), 0, 0.0, 0.0
for step, (x, y) in enumerate(DataLoader(Rows(), 1, sampler=[0] * 240)):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    # in three of the first steps lines are counted, which takes time that no look sees
    if step == 40:
        began, python = time.perf_counter(), 0.0
    for _ in range(4):
        before = time.perf_counter()
        words = count(words)
        python += time.perf_counter() - before
        weights @ weights
print(python / (time.perf_counter() - began))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    watched = watch_text(folder, TRAIN, ORDER)
    assert watched.code == 0, watched.err
    text = (folder / "train.py").read_text().splitlines()
    found = watched.seen[0].lines
    return found, lambda line: text[line - 1].strip()


def test_a_line_that_takes_most_of_a_step_is_seen_most_with_the_line_that_calls_it(seen):
    lines, code = seen
    shares = {code(line): count / lines.looks for _, line, count in lines.hot}
    assert shares["slow()"] > 0.3
    assert shares.get("pass", 0) + shares["while time.perf_counter() < until:"] > 0.3


def test_python_between_two_calls_of_torch_is_seen_for_its_time(tmp_path):
    """A thread that waits for the interpreter gets it where torch lets go of it, unless it may ask for it sooner."""
    watched = watch_text(tmp_path, ALTERNATING, ORDER)
    assert watched.code == 0, watched.err
    text = (tmp_path / "train.py").read_text().splitlines()
    lines, share = watched.seen[0].lines, float(watched.out.split()[-1])
    of_python = sum(count for _, line, count in lines.hot if text[line - 1].strip() == "words = count(words)")
    # it was 0 of some 500 looks while Python ran for 18 to 40 percent of the time
    assert of_python / lines.looks > share / 2 > 0.02


def test_only_lines_that_keep_a_graph_are_said_to_keep(seen):
    lines, code = seen
    assert {code(line) for _, line in lines.keeps} == {"total = total + loss", "kept.append(loss)"}


def test_an_evaluation_with_gradients_that_no_backward_reaches_is_seen(seen):
    lines, code = seen
    assert {code(line) for _, line in lines.no_backward} == {"model(x).sum().item()"}


def test_nothing_is_seen_without_the_order(tmp_path):
    assert watch_text(tmp_path, TRAIN.replace("range(6)", "range(1)")).seen[0].lines is None


@pytest.mark.parametrize(("text", "is_on"), [("torch.autograd.set_detect_anomaly(True)", True), ("", False)])
def test_anomaly_detection_is_seen(tmp_path, text, is_on):
    assert watch_text(tmp_path, f"{text}\n{TRAIN}", ORDER).seen[0].lines.anomaly is is_on


def test_a_frame_that_is_on_no_line_at_this_moment_names_none():
    def frame(line, back):
        return SimpleNamespace(f_code=SimpleNamespace(co_filename="/home/me/train.py"), f_lineno=line, f_back=back)

    assert list(_lines(frame(None, frame(79, None)))) == [("/home/me/train.py", 79)]


@pytest.mark.parametrize(("seconds", "looks"), [(0.001, 1), (0.004, 1), (0.1, 25), (60.0, 250)])
def test_a_look_that_a_call_held_up_stands_for_the_looks_that_were_missed(seconds, looks):
    assert weight_of(seconds) == looks


@pytest.mark.parametrize(("place", "is_awaited"), [("script", True), ("elsewhere", False)])
def test_only_an_evaluation_in_the_files_of_the_script_is_awaited(tmp_path, place, is_awaited):
    """A package in another folder may evaluate, too, and the script never runs that."""
    for name in ("script", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / place / "evaluating.py").write_text("def evaluate(model):\n    model.eval()\n")
    text = f"""
    import sys
    sys.path.append({str(tmp_path / "elsewhere")!r})
    import evaluating
    for x, y in DataLoader(Rows(), 8):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    """
    order = HookOrder(purpose="look", lines=True, warm_steps=1, steps=4, evaluation_s=1.0)
    watched = watch_text(tmp_path / "script", text, order)
    assert watched.seen[0].lines.awaited is is_awaited
