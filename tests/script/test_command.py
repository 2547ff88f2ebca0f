import pytest

from gpudoc.errors import GpudocError
from gpudoc.script.command import Command, checked


def command(*words):
    return Command(tuple(words))


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (("python", "t.py", "--batch-size", "{batch}", "-v"), ("python", "t.py", "-v")),
        (("python", "t.py", "--batch-size={batch}"), ("python", "t.py")),
        (("python", "t.py", "data.batch={batch}"), ("python", "t.py")),
        (("python", "t.py", "{batch}"), None),
        (("bash", "-c", "python t.py -b {batch}"), None),
    ],
)
def test_the_command_without_its_batch_is_what_its_owner_runs(words, without):
    found = command(*words)
    assert found.takes_batch
    assert found.without_batch() == without


def test_the_batch_is_put_in_wherever_the_placeholder_stands():
    found = command("bash", "-c", "python t.py -b {batch} && echo {batch}", "--name=run-{batch}")
    assert found.at(48) == ("bash", "-c", "python t.py -b 48 && echo 48", "--name=run-48")
    assert found.at(None) == found.words


def test_a_command_without_the_placeholder_is_left_as_it_is():
    found = command("python", "t.py", "--batch-size", "32")
    assert not found.takes_batch
    assert found.at(64) == found.words


def test_the_command_is_shown_as_it_is_typed():
    assert str(command("python", "my train.py", "-b", "{batch}")) == "python 'my train.py' -b {batch}"


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ([], "nothing to tune", "gpudoc tune -- python train.py"),
        (["no-such-thing-here"], "no such command", "command -v"),
        (["train.py", "--x"], "no such command", "python train.py --x"),
        (["python3", "missing.py"], "missing.py: no such file", "ls"),
    ],
)
def test_what_cannot_be_started_is_said_with_what_to_type(words, says, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpudocError, match=says) as told:
        checked(words)
    assert hint in told.value.hint


def test_a_script_that_may_not_be_executed_is_told_how_to_start_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(GpudocError, match="cannot be executed") as told:
        checked(["./train.py"])
    assert told.value.hint == "gpudoc tune -- python ./train.py"
