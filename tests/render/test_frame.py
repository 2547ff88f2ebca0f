from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.facts.model import Gpu
from gpudoc.render import frame
from gpudoc.render.doctor_output import Output, show
from tests.doctor.causes.judge import report_of
from tests.machines.built import gpu, machine
from tests.terminal import gpudoc, shown

LOST = diagnose(Evidence(source="machine", machine=machine(gpu(0), gpu(1), Gpu(index=2, lost=True, nvml_code=15))))
OLD = report_of(
    "PyTorch version: 2.6.0+cu124\nNvidia driver version: 470.57.02\n"
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)\n"
)


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_the_root_cause_stands_in_a_coloured_box_as_wide_as_the_screen(columns):
    screen = shown(lambda: show(LOST, Output()), columns)
    wide = min(columns, frame.WIDE)
    top, bottom = (screen.lines.index(f"{a}{'─' * (wide - 2)}{b}") for a, b in ("╭╮", "╰╯"))
    inside = screen.lines[top + 1 : bottom]
    assert inside[0].startswith("│ ✗ The GPU no longer answers on the PCIe bus: GPU 2")
    assert all(line.startswith("│ ") and line.endswith(" │") and len(line) == wide for line in inside)
    # at 80 columns one of the commands is too long for the box
    assert any(line.lstrip("│ ").startswith("$ journalctl -k") for line in (screen.lines if columns == 80 else inside))
    assert screen.coloured
    assert screen.code == 0


def test_a_command_that_does_not_fit_the_box_stands_whole_below_it_in_its_place_among_the_steps():
    screen = shown(lambda: show(OLD, Output()), 80)
    below = screen.raw.replace("\r\n", "\n").split("╯", 1)[1]
    command = next(line for line in below.splitlines() if "pip install" in line)
    assert "│" not in command
    assert command.rstrip("\x1b[0m").endswith("/whl/cu118")
    words = [line.strip() for line in screen.lines]
    end = words.index(f"╰{'─' * 78}╯")
    assert not any("fix:" in line or "$ " in line for line in words[:end])
    assert [line[:2] for line in words[end:] if line.startswith(("fix:", "$ "))][:2] == ["fi", "$ "]


@pytest.mark.parametrize("columns", [80, 120])
def test_no_color_and_a_dumb_terminal_show_the_same_words_without_colour(columns):
    coloured = shown(lambda: show(LOST, Output()), columns)
    without = shown(lambda: show(LOST, Output()), columns, {"NO_COLOR": "1"})
    assert without.lines == coloured.lines
    assert not without.coloured
    dumb = shown(lambda: show(LOST, Output()), columns, {"TERM": "dumb"})
    assert "\x1b" not in dumb.raw
    assert "✗ The GPU no longer answers" in dumb.text
    assert "╭" not in dumb.raw


def test_plain_says_the_marks_as_words():
    screen = shown(lambda: show(LOST, Output(plain=True)))
    assert "\x1b" not in screen.raw
    assert "  broken: GPU        The GPU no longer answers" in screen.text
    assert "  passed: PyTorch    15 checks passed" in screen.text
    assert not set("✗✓╭│") & set(screen.text)


def test_a_terminal_without_utf8_gets_other_marks_and_no_question_marks():
    screen = shown(lambda: show(LOST, Output()), 80, {"LC_ALL": "C"})
    assert screen.code == 0
    assert "  x GPU        The GPU no longer answers on the PCIe bus: GPU 2" in screen.lines
    assert "?" not in screen.text
    assert all(ord(letter) < 128 for letter in screen.raw)
    assert max(map(len, screen.lines)) <= 80


def test_forty_columns_hold_every_line_but_commands():
    screen = shown(lambda: show(LOST, Output()), 40)
    raw = shown(lambda: show(LOST, Output(plain=True)), 40).raw.replace("\r", "")
    assert "╭" not in screen.text
    assert "GPU  name" in screen.lines[4]
    long = [line for line in raw.splitlines() if len(line) > 40 and "$ " not in line]
    assert not [line for line in long if not line.lstrip().startswith(("not checked:", "passed:", "broken:"))]


def test_a_pipe_gets_neither_box_nor_colour(capsys):
    show(LOST, Output())
    text = capsys.readouterr().out
    assert "✗ The GPU no longer answers on the PCIe bus: GPU 2" in text
    assert "╭" not in text
    assert "\x1b" not in text


def test_lines_are_folded_between_words_only():
    assert frame.fold("a b_" + "c" * 30, 20) == ["a", "  b_" + "c" * 30]
    assert frame.fold("one two three four five six", 12, most=2) == ["one two", "  three …"]


def test_a_path_under_home_is_short(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert frame.short_path(tmp_path / "a" / "b.yaml") == "~/a/b.yaml"
    assert frame.short_path(Path("/etc/x")) == "/etc/x"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_every_screen_is_folded_between_words_and_commands_are_left_whole(columns):
    long = "x" * 30
    text = f"  seen: {' '.join([long] * 6)}\n    $ {' '.join([long] * 6)}\nnext     {' '.join([long] * 6)}\n"
    screen = shown(lambda: frame.show(text), columns)
    printed = [frame.Text.from_ansi(line).plain for line in screen.raw.replace("\r", "").splitlines()]
    assert printed[-2:] == text.splitlines()[-2:]
    assert all(len(line) <= columns and line.strip().endswith(long) for line in printed[:-2])


def test_the_catalogue_is_folded_too():
    screen = gpudoc("doctor", "--list", columns=80)
    assert screen.code == 0
    assert all(len(line) <= 80 for line in screen.raw.replace("\r", "").splitlines() if "\x1b" not in line)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_characters_of_two_columns_are_folded_by_columns_and_end_no_line_too_late(width):
    text = (
        "解决：增加数据加载进程（num_workers），设置 pin_memory=True 和 persistent_workers=True；解码和缩放提前做一次。"
    )
    lines = frame.fold(text, width)
    assert all(cell_len(line) <= width for line in lines if "persistent_workers" not in line or width > 30)
    assert "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "")
    assert not any(line.strip().startswith(("，", "。", "；", "）")) for line in lines)
    assert frame.fold(text, width, most=1)[0].endswith("…")
    assert cell_len(frame.fold(text, width, most=1)[0]) <= width


def test_a_box_around_chinese_is_straight():
    shape = frame.Form(60, boxed=True)
    lines = frame.box(["✗ 显存不足：这个程序需要的显存超过了显卡的容量", "  seen: CUDA out of memory"], shape)
    assert {cell_len(line) for line in lines} == {60}
    assert frame.box(["✗ 显存", "  解决：换", f"    $ {'x' * 70}"], shape, step="解决：")[-2:] == [
        "  解决：换",
        f"    $ {'x' * 70}",
    ]
