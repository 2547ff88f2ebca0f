"""A user's mistake is exit code 2 and one screen that names what, where and what to type; never a traceback."""

import json
import os
import subprocess
import sys

import pytest

from gpudoc.cli import app
from tests.train.support import forget_limit

MODULE = """
import torch

class Data(torch.utils.data.Dataset):
    def __init__(self, n: int = 64):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return torch.full((4,), float(i)), torch.tensor([float(i % 2)])

class Model(torch.nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.line(x)

class NoParameters(torch.nn.Module):
    def forward(self, x):
        return x

class PerSample(Model):
    def forward(self, x, y):
        return self.line(x).sum(1)

class Ragged(Data):
    def __getitem__(self, i):
        return torch.zeros(i + 1), torch.zeros(1)
"""
VALID = """
model: {target: 'mine:Model', args: {width: 4}}
data: {target: 'mine:Data', args: {n: 64}}
loss: {target: 'torch.nn:MSELoss'}
optimizer: {target: 'torch.optim:SGD', args: {lr: 0.01}}
train: {global_batch: 8, epochs: 1}
"""
COMMANDS = {
    "train": ("train", "--profile", "off", "--device", "cpu", "--steps", "2"),
    "tune": ("tune", "--device", "cpu", "--budget", "60s"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "cfg.yaml").write_text(VALID)
    return tmp_path


@pytest.fixture
def gpudoc(folder, monkeypatch, capfd):
    """Runs one command line in `folder` in this process: a refusal needs none of its own, and importing torch for each
    takes longer than what is tested."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpudoc", *arguments])
        sys.modules.pop("mine", None)
        capfd.readouterr()
        try:
            code = app.run(list(arguments))
        finally:
            forget_limit()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    yield call
    sys.modules.pop("mine", None)


def gpudoc_process(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "gpudoc", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
    )


def assert_refused(done, says, code=2):
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 24


FILES = {
    "missing": (None, "no such config"),
    "empty": (b"", "empty"),
    "binary": (bytes(range(256)), "not UTF-8"),
    "oversized": (b"#" * (1 << 20) + b"\n", "at most 1 MiB"),
    "malformed": (b"model: {target: [}\n", "cfg.yaml:1:18: not YAML"),
    "control character": (VALID.replace("width", "wi\x7fdth", 1).encode(), "a control character (0x7f)"),
    "unknown key": (VALID.replace("train:", "trian:").encode(), "did you mean 'train'"),
    "wrong type": (VALID.replace("global_batch: 8", "global_batch: [8]").encode(), "cfg.yaml:6: train.global_batch"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_config(gpudoc, folder, command, kind):
    content, says = FILES[kind]
    path = folder / "cfg.yaml"
    path.unlink() if content is None else path.write_bytes(content)
    assert_refused(gpudoc(*COMMANDS[command], "--model", "cfg.yaml"), says)
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(
        {"mine.py", "cfg.yaml"} - ({"cfg.yaml"} if content is None else set())
    )


CONTENTS = {
    "module not found": ("mine:Model", "nomodule:Model", "nomodule"),
    "not allowed": ("mine:Model", "subprocess:Popen", "may not import"),
    "no such name": ("mine:Model", "mine:Modle", "mine:Model"),
    "wrong argument": ("{width: 4}", "{widht: 4}", "'width'"),
    "length below zero": ("{n: 64}", "{n: -1}", "len() of the data set fails"),
    "empty data set": ("{n: 64}", "{n: 0}", "is empty"),
    "no parameters": ("mine:Model', args: {width: 4}", "mine:NoParameters'", "no parameter to train"),
    "loss not scalar": (  # the model returns one loss per sample
        VALID.split("optimizer")[0],
        "model: {target: 'mine:PerSample'}\ndata: {target: 'mine:Data'}\n",
        "not a single number",
    ),
    "samples of different sizes": ("mine:Data'", "mine:Ragged'", "collate"),
}


# tune asks a trial's process, which refuses in the same words; two ways there are enough for every save
_SLOW = set(CONTENTS) - {"module not found", "loss not scalar"}


@pytest.mark.parametrize(
    ("command", "kind"),
    [("train", kind) for kind in CONTENTS]
    + [pytest.param("tune", kind, marks=pytest.mark.slow if kind in _SLOW else ()) for kind in CONTENTS],
)
def test_a_config_that_cannot_be_trained(gpudoc, folder, command, kind):
    old, new, says = CONTENTS[kind]
    assert old in VALID
    (folder / "cfg.yaml").write_text(VALID.replace(old, new))
    done = gpudoc(*COMMANDS[command], "--model", "cfg.yaml")
    assert "Traceback" not in done.stderr.replace("Traceback (most recent call last) of your code", "")
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        ((*COMMANDS["train"], "--batch-size", "0"), "batch", 2),
        ((*COMMANDS["train"], "--set", "micro_bacth=3"), "micro_batch", 2),
        ((*COMMANDS["train"], "--set", "seed"), "seed", 2),
        ((*COMMANDS["train"], "--memory-limit", "banana"), "not a size", 2),
        ((*COMMANDS["train"], "--precision", "fp8"), "fp8", 2),
        ((*COMMANDS["tune"], "--memory-limit", "banana"), "not a size", 2),
        ((*COMMANDS["tune"], "--budget", "soon"), "not a duration", 2),
        ((*COMMANDS["tune"], "--only", "luck"), "luck", 2),
        (("train", "--device", "cuda", "--steps", "2"), "--device cpu", 1),
        (("tune", "--device", "cuda"), "--device cpu", 1),
        (("train", "--device", "toaster"), "toaster", 2),
        (("bench", "--device", "toaster"), "toaster", 2),
        (("bench", "--compare", "no-such.json", "--quick"), "no-such.json", 2),
        (("doctor", "no-such.log"), "no-such.log", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_options_that_make_no_sense(gpudoc, folder, arguments, says, code):
    if arguments[0] in ("train", "tune"):
        arguments = (*arguments, "--model", "cfg.yaml")
    assert_refused(gpudoc(*arguments), says, code)


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"schema: gpudoc.profile.v7\n", b"settings: 3\n", b"{"])
def test_a_named_profile_that_is_none(gpudoc, folder, content):
    (folder / "bad.yaml").write_bytes(content)
    done = gpudoc("train", "--profile", "bad.yaml", "--model", "cfg.yaml", "--device", "cpu", "--steps", "2")
    assert_refused(done, "bad.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        (*COMMANDS["train"], "--model", "cfg.yaml", "--run-dir", "taken/run"),
        (*COMMANDS["tune"], "--model", "cfg.yaml", "--out", "taken/profile.yaml"),
        ("bench", "--quick", "--device", "cpu", "--out", "taken/bench.json"),
        ("doctor", "--quick", "--out", "taken/doctor.json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_place_that_cannot_be_written_is_said_before_the_work(gpudoc, folder, arguments):
    (folder / "taken").write_text("a file where a folder should be")
    done = gpudoc(*arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode == 2, done.stderr
    assert "taken" in done.stderr
    assert (folder / "taken").read_text() == "a file where a folder should be"


@pytest.mark.parametrize("command", COMMANDS)
def test_with_json_a_refusal_is_one_document_of_a_process(folder, command):
    (folder / "cfg.yaml").write_text(VALID.replace("train:", "trian:"))
    done = gpudoc_process(folder, *COMMANDS[command], "--model", "cfg.yaml", "--json")
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    failure = json.loads(done.stdout)
    assert failure["schema"] == "gpudoc.error.v1"
    assert "trian" in failure["message"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_no_file_can_have(gpudoc, command):
    assert_refused(gpudoc(*COMMANDS[command], "--model", "x" * 400), "no such file")


def test_a_pipe_without_a_writer_is_not_waited_for(folder, gpudoc):
    os.mkfifo(folder / "pipe")
    assert_refused(gpudoc("tune", "--model", "pipe"), "a pipe without a writer")
    assert_refused(gpudoc("train", "--model", "cfg.yaml", "--profile", "pipe", "--device", "cpu"), "without a writer")
    assert_refused(gpudoc("bench", "--compare", "pipe"), "without a writer")
    assert_refused(gpudoc("doctor", "pipe"), "without a writer")
