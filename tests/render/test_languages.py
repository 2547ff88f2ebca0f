import io
from dataclasses import replace

import pytest
from rich.cells import cell_len

from gpudoc.render.doctor import render
from gpudoc.render.doctor_output import Output, show
from tests.doctor.causes.judge import report_of

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 24.00 GiB total capacity)"


@pytest.mark.parametrize("language", ["zh", "ru"])
@pytest.mark.parametrize("width", [44, 80, 118])
@pytest.mark.parametrize(
    "text",
    [
        OOM,
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    x['lr']\nKeyError: 'lr'",
        "My training is slow, the GPU idles. Why?",
        "How many num_workers should I use with 8 CPU cores?",
        "step 1 loss 0.5",
        "hello",
        "It works now, thanks! No CUDA out of memory any more.",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    ],
)
def test_every_screen_fits_and_its_own_words_are_of_the_language(text, width, language):
    english = report_of(text)
    screen = render(replace(english, language=language), width=width, boxed=True)
    for line in screen.splitlines():
        assert cell_len(line) <= width or "$ " in line or "│" not in line, line
    for word in ("fix:", "seen:", "next:", "also:", "% sure", "collect next", "I don't know", "This is", "No error"):
        assert word not in screen
    typed = [run for finding in english.findings for step in finding.fix for run in step.run.splitlines()]
    whole = render(replace(english, language=language), verbose=True)
    assert all(f"$ {run}" in whole for run in typed)


def test_a_terminal_without_the_letters_gets_english(monkeypatch):
    report = replace(report_of(OOM), language="zh")
    for encoding, said in (("ascii", "fix: "), ("latin-1", "fix: "), ("utf-8", "解决："), ("gbk", "解决：")):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", out)
        show(report, Output())
        out.flush()
        assert said in out.buffer.getvalue().decode(encoding), encoding
