from __future__ import annotations

import pathlib

import pytest

from gpudoc.facts.readers.genre import genre_of
from gpudoc.facts.readers.intake import read_all

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = """# Trainer

[docs](docs/a.md) · [issues](https://example.org/issues)

## Install

```sh
pip install torch==2.1.0+cu118
```

## When memory runs out

You may see `CUDA out of memory`. Make the batch smaller.

```text
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
```

## Old drivers

```text
The NVIDIA driver on your system is too old (found version 11040).
```
"""
ISSUE = """### Describe the bug

Training stops.

### To reproduce

```python
import torch
```

### Expected behavior

It trains.

### Logs

```
RuntimeError: CUDA out of memory
```

### Environment

```
PyTorch version: 2.1.0
```
"""


def test_a_guide_is_documentation_and_says_how_that_shows():
    kind = genre_of(GUIDE)
    assert kind.genre == "documentation"
    assert "headings" in kind.why


@pytest.mark.parametrize("page", sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"]), ids=lambda page: page.name)
def test_the_projects_own_pages_are_no_patients(page):
    assert genre_of(page.read_text("utf-8"), page.name).genre == "documentation"


def test_a_report_with_the_headings_of_a_template_is_a_paste():
    assert genre_of(ISSUE).genre == "paste"


def test_the_title_of_another_page_and_an_option_are_nobodys_words():
    assert genre_of(GUIDE + "\nSee [My loss is NaN](nan.md), or start Python with `-I`.\n").genre == "documentation"


def test_who_speaks_of_himself_reports():
    assert genre_of(GUIDE + "\nI get this too, on my machine.\n").genre == "paste"


def test_a_traceback_between_headings_is_a_paste():
    assert genre_of(GUIDE + "\nTraceback (most recent call last):\n").genre == "paste"


@pytest.mark.parametrize(
    "text",
    [
        "epoch 1 loss 0.5\nepoch 2 loss 0.4",
        "# comment of a log\n# another\nstep 1 loss 3.0",
        "+-----+\n| NVIDIA-SMI 550.54.15 |\n+=====+",
        "==============NVSMI LOG==============\nGPU 00000000:17:00.0\n    Product Name : x\n",
    ],
)
def test_logs_and_tables_are_pastes(text):
    assert genre_of(text).genre == "paste"


def test_a_whole_program_is_source_and_a_session_is_not():
    program = "import torch\n\n\ndef train():\n    torch.cuda.empty_cache()\n"
    assert genre_of(program, "train.py").genre == "source"
    assert genre_of(program + "\n\ndef more():\n    pass\n" * 10).genre == "source"
    assert genre_of(program).genre == "paste"
    assert genre_of(">>> import torch\n>>> torch.cuda.is_available()\nFalse\n").genre == "paste"
    assert genre_of(f"I run this:\n{program}", "train.py").genre == "paste"


def test_few_chapters_are_left_open_unless_the_file_is_named_so():
    text = "## Memory\n\nThe batch is too large.\n\n## Speed\n\nMore workers.\n"
    assert genre_of(text).genre == "chapters"
    assert genre_of(text, "NOTES.md").genre == "documentation"
    assert genre_of("**gpudoc doctor: broken**\n\n" + text, "report.md").genre == "paste"


def test_a_configuration_next_to_a_log_goes_with_the_log():
    inputs = [("my.yaml", b"lr: 0.1\nepochs: 3\n"), ("train.log", b"RuntimeError: boom\n")]
    reading = read_all(inputs)
    assert (reading.kind.genre, reading.text.lines[0].text) == ("paste", "lr: 0.1")
    assert read_all(inputs[:1]).kind.genre == "configuration"


def test_documentation_beside_a_log_is_left_out():
    reading = read_all([("README.md", GUIDE.encode()), ("train.log", b"RuntimeError: boom\n")])
    assert reading.kind.genre == "paste"
    assert [line.text for line in reading.text.lines] == ["RuntimeError: boom"]
    assert reading.text.lines[0].origin == "train.log line 1"
    assert read_all([("README.md", GUIDE.encode("utf-16"))]).kind.genre == "documentation"


@pytest.mark.parametrize(("text", "name", "why"), [
    ("model:\n  target: m:Net\ndata:\n  target: m:data\n", "my.yaml", "a config for gpudoc"),
    ("model: resnet18\n# how\nlr: 0.1\nsteps:\n  - 1\n", "my.yaml", "a program's settings"),
    ("[train]\nlr = 0.1\n", "my.toml", "a program's settings"),
])  # fmt: skip
def test_a_file_of_settings_is_no_log(text, name, why):
    kind = genre_of(text, name)
    assert (kind.genre, kind.why) == ("configuration", why)


@pytest.mark.parametrize(("text", "name"), [
    ("lr: 0.1\nepochs: 3\n", "train.log"), ("dependencies:\n  - pytorch=2.1\n", "environment.yml"),
    ("lr: 0.1\nRuntimeError in the first step\n", "my.yaml"), ("", "my.yaml"),
])  # fmt: skip
def test_what_holds_more_than_settings_or_states_packages_is_a_paste(text, name):
    assert genre_of(text, name).genre == "paste"
