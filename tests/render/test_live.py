import threading

import pytest

from gpudoc.render import live
from gpudoc.render.live import Live, lines
from tests.terminal import shown


def talk(keep, plain=False, fail=False):
    drawn = threading.Event()
    real = live.lines

    def counted(*arguments):
        if arguments[2] >= 2:
            drawn.set()
        return real(*arguments)

    live.lines = counted
    with Live(plain=plain, keep=keep) as progress:
        progress.say("! others use this GPU")
        progress.say("first sentence")
        progress.advance(3.0, 60.0, "trial 5: your settings, batch 32 · best 4,210 samples/s · 413 MiB of 10.9 GiB")
        if progress._draws:
            assert drawn.wait(20)
        progress.say("second sentence")
        if fail:
            raise ValueError("x")


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_what_is_drawn_is_gone_at_the_end_and_never_wrapped(columns, colour):
    screen = shown(lambda: talk(keep=False), columns, colour)
    assert screen.lines == ["! others use this GPU"]
    assert screen.moves
    assert "trial 5" in screen.raw
    assert "3 s of 1 min 00 s" in screen.raw
    frames = screen.raw.replace("\r\n", "\n").split("\x1b[J")
    assert len(frames) >= 3
    assert all(len(line) < columns for frame in frames for line in frame.split("\x1b")[0].splitlines())


def test_lines_that_are_kept_stay_above_what_is_drawn():
    assert shown(lambda: talk(keep=True)).lines == ["! others use this GPU", "first sentence", "second sentence"]


def test_after_a_failure_the_last_lines_stand_there():
    screen = shown(lambda: talk(keep=False, fail=True))
    assert screen.lines[:3] == ["! others use this GPU", "first sentence", "second sentence"]


@pytest.mark.parametrize("how", [{"env": {"TERM": "dumb"}}, {"plain": True}])
def test_plain_and_a_dumb_terminal_get_lines_that_stay_and_nothing_is_drawn(how):
    screen = shown(lambda: talk(keep=False, plain="plain" in how), env=how.get("env"))
    assert screen.lines == ["! others use this GPU", "first sentence", "second sentence"]
    assert not screen.moves


def test_a_pipe_gets_the_lines_too(capsys):
    with Live(keep=False) as progress:
        progress.advance(1.0, 2.0, "memory")
        progress.say("hello")
    assert capsys.readouterr().err == "hello\n"


def test_a_terminal_without_utf8_gets_a_bar_it_can_show():
    screen = shown(lambda: talk(keep=False), env={"LC_ALL": "C"})
    assert screen.lines == ["! others use this GPU"]
    assert all(ord(letter) < 128 for letter in screen.raw)


def test_the_bar_never_runs_over_and_things_are_counted():
    assert lines((20.0, 10.0, "x"), 0, 0, 80)[0].count("━") == 16
    assert lines((0.0, 0.0, "builds the model"), 0, 0, 80) == ["⠋ builds the model"]
    assert "10 s of 10 s" in lines((5.0, 10.0, "x"), 60, 0, 80)[0]
    assert "1 of 3 · planning" in lines((1, 3, "planning"), 60, 0, 80)[0]
    assert all(len(line) < 30 for line in lines((1.0, 2.0, "x" * 300), 0, 0, 30))


@pytest.mark.parametrize("columns", [40, 80])
def test_the_cursor_rests_at_the_begin_of_a_line_where_an_echoed_ctrl_c_breaks_nothing(columns):
    screen = shown(lambda: talk(keep=False), columns)
    frames = [frame for frame in screen.raw.split("\x1b[J") if "trial 5" in frame]
    assert frames
    assert all(frame.partition("\x1b")[0].rstrip("\n").endswith("\r") for frame in frames)


def test_a_long_line_that_stays_is_broken_between_words():
    said = "threads spin while they wait for each other: trying threads that sleep, which leaves the CPUs to others"

    def speak():
        with Live() as progress:
            progress.say(said)

    lines_shown = shown(speak, 40).lines
    assert len(lines_shown) > 2
    assert " ".join(" ".join(lines_shown).split()) == said
