import sys

from gpudoc.render.live import Live, bar


class Terminal:
    def __init__(self, tty):
        self.tty, self.text = tty, ""

    def isatty(self):
        return self.tty

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def shown(monkeypatch, tty, plain=False):
    stream = Terminal(tty)
    monkeypatch.setattr(sys, "stderr", stream)
    with Live(plain=plain) as live:
        live.advance(3, 10, "memory")
        live.say("hello")
    return stream.text


def test_a_terminal_is_drawn_over_and_left_clean(monkeypatch):
    text = shown(monkeypatch, tty=True)
    assert "memory, about 7 s left" in text
    assert text.endswith("hello\n")
    assert text.index("\r" + " " * 20) < text.index("hello")


def test_a_pipe_or_plain_gets_only_the_lines_that_stay(monkeypatch):
    assert shown(monkeypatch, tty=False) == "hello\n"
    assert shown(monkeypatch, tty=True, plain=True) == "hello\n"


def test_the_bar_never_runs_over():
    assert bar(20, 10, "x").count("#") == bar(10, 10, "x").count("#") == 24
    assert bar(1, 0, "x").count("#") == 0
    assert len(bar(1, 2, "x" * 300)) <= 110
