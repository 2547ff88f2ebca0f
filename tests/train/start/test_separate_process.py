import signal
import threading

import pytest

from gpudoc.errors import GpudocError
from gpudoc.train.start.separate_process import arguments, train_apart
from tests.train.support import write_workload


def test_options_become_the_words_of_the_command_line():
    options = {"steps": 4, "no_preflight": True, "shared": False, "gpus": None, "set": {"lr": 1e-3, "compile": True}}
    assert arguments("cfg.yaml", options) == [
        "--model", "cfg.yaml", "--steps", "4", "--no-preflight", "--set", "lr=0.001", "--set", "compile=true"
    ]  # fmt: skip


def test_what_cannot_be_trained_is_the_commands_own_error():
    with pytest.raises(GpudocError) as caught:
        train_apart("quickstart", {"no_such_option": 1})
    assert "--no-such-option" in caught.value.message
    assert caught.value.exit_code == 2


class Interrupting:
    """Presses Ctrl+C once, when the first step has been told."""

    def __init__(self):
        self.pressed = False

    def say(self, text):
        if text.startswith("step ") and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)

    def advance(self, done, total, text):
        pass


def test_ctrl_c_is_handed_on_and_the_state_is_saved(tmp_path, monkeypatch):
    assert threading.current_thread() is threading.main_thread()
    monkeypatch.chdir(tmp_path)
    write_workload(tmp_path, model={"sleep": 0.02}, log_every=2)
    summary, code = train_apart("cfg.yaml", {"steps": 100_000, "profile": "off", "device": "cpu"}, Interrupting())
    assert code == 130
    assert summary["status"] == "stopped"
    assert summary["steps"] > 0
