import os

import pytest

from gpudoc.facts.live.sources import is_library, kept_graphs, read_lines, whole_statement
from gpudoc.facts.process import Frame

LOOP = """
def train(loader):
    losses = []
    total = 0
    for x, y in loader:
        loss = f(x, y)
        loss.backward()
        {}
"""


def test_what_belongs_to_the_user():
    assert not is_library("/home/me/train.py")
    assert is_library("/home/me/.venv/lib/python3.11/site-packages/torch/optim/adam.py")
    assert is_library("/usr/lib/python3.11/json/__init__.py")
    assert is_library("<frozen importlib._bootstrap>")
    assert is_library("/usr/local/bin/torchrun")


def test_a_loss_that_is_kept_with_its_graph_is_found():
    assert kept_graphs(LOOP.format("losses.append(loss)")) == [8]
    assert kept_graphs(LOOP.format("total += loss")) == [8]


def test_numbers_and_detached_losses_are_not_blamed():
    for line in ("losses.append(loss.item())", "total += loss.detach()", "total += 1", "losses.append(x)", "loss += 1"):
        assert kept_graphs(LOOP.format(line)) == [], line
    assert kept_graphs("def f(:") == []


def test_accelerators_backward_counts_too():
    text = LOOP.replace("loss.backward()", "accelerator.backward(loss)")
    assert kept_graphs(text.format("losses.append(loss)")) == [8]


def test_a_statement_over_several_lines_is_read_whole():
    rows = ["x = call(", "    loss.item(),", ")", "y = 1"]
    assert whole_statement(rows, 1) == "x = call( loss.item(), )"
    assert whole_statement(rows, 4) == "y = 1"


def test_lines_are_read_from_the_jobs_own_files(tmp_path):
    file = tmp_path / "t.py"
    file.write_text(LOOP.format("losses.append(loss)"))
    lines, kept = read_lines(os.getpid(), [Frame("train", str(file), 7), Frame("x", "/nowhere.py", 3)])
    assert lines == {(str(file), 7): "loss.backward()"}
    assert kept == {(str(file), 8): "losses.append(loss)"}


def read_as(file, owner, root):
    (root / "7").mkdir(exist_ok=True)
    os.chown(root / "7", owner, -1)
    return read_lines(7, [Frame(function="step", file=str(file), line=1)], root=str(root))[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read what the watched user may not")
def test_root_shows_no_line_that_the_owner_of_the_process_may_not_read(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("password = 'hunter2'\n")
    secret.chmod(0o600)
    assert read_as(secret, 4711, tmp_path) == {}
    assert read_as(secret, 0, tmp_path) == {(str(secret), 1): "password = 'hunter2'"}
    secret.chmod(0o604)
    assert read_as(secret, 4711, tmp_path) == {(str(secret), 1): "password = 'hunter2'"}


def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path):
    file, link = tmp_path / "train.py", tmp_path / "link.py"
    file.write_text("x = 1\n")
    link.symlink_to(file)
    assert read_as(file, os.getuid(), tmp_path) != {}
    assert read_as(link, os.getuid(), tmp_path) == {}


def test_a_pipe_without_a_writer_and_a_file_that_is_too_large_are_not_waited_for(tmp_path):
    pipe, large = tmp_path / "pipe.py", tmp_path / "large.py"
    os.mkfifo(pipe)
    large.write_bytes(b"x = 1\n")
    os.truncate(large, 1 << 40)
    assert read_as(pipe, os.getuid(), tmp_path) == read_as(large, os.getuid(), tmp_path) == {}
