import dataclasses
import json

import pytest

from gpudoc.doctor.document import dump
from gpudoc.doctor.live.judge import judge
from gpudoc.doctor.model import Finding, Observation
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.render import frame
from gpudoc.render.watch import render, render_again, render_nothing, save_text, to_json
from tests.facts.live.made import track, watch, worker
from tests.terminal import shown

SLOW = watch(
    {1: "wait*60 backward*30 forward*10", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, cpu_s=19, main_cpu_s=19)]
)
FINE = watch({1: "backward*70 forward*30"}, [track(cpu_s=19.0, main_cpu_s=19.0)])


def test_the_first_screen_says_where_the_time_goes_the_cause_and_the_fix():
    text = render(judge(SLOW), SLOW)
    assert "waiting for data 60 %" in text
    assert "too_few_workers" in text
    assert "fix: Use more workers" in text
    assert "as fast (estimate)" in text
    assert text.index("fix:") < text.index("loader workers: 1")
    assert "py-spy" not in text
    assert len(text.splitlines()) <= 14
    assert max(map(len, text.splitlines())) <= 118


def test_a_healthy_job_is_called_healthy():
    text = render(judge(FINE), FINE)
    assert "Healthy: computing takes 100 % of the time" in text
    assert "Try what may still help: " in text


def test_a_job_that_does_not_train_yet_is_watched_again_later():
    early = watch({1: "import*100"}, [track(cpu=tuple((i / 2, i / 2) for i in range(41)))])
    text = render(judge(early), early)
    assert "is not training yet" in text
    assert "No bottleneck" not in text


def test_a_job_that_lacks_cpus_is_told_what_it_wants():
    crowded = watch({1: "backward*100"}, [track(cpu_s=4.0, main_cpu_s=4.0, queued_s=16.0)])
    assert "0.2 of 8 CPUs used where it needs 1.0" in render(judge(crowded), crowded)
    assert "where it needs" not in render(judge(FINE), FINE)


def test_the_first_screen_shows_no_more_than_two_lines_of_a_kind():
    many = tuple(Observation("time_goes_to", f"line {n}", "x") for n in range(4))
    one = Finding(id="python_bound", confidence=0.9, evidence=(*many, Observation("other", "seen", "x")))
    text = render(dataclasses.replace(judge(SLOW), findings=(one,)), SLOW)
    assert "line 1" in text
    assert "line 2" not in text
    assert "other: seen" in text


def test_verbose_lists_what_was_and_was_not_checked():
    text = render(judge(SLOW), SLOW, verbose=True)
    assert "not checked: thermal_throttle: NVML: not found" in text
    assert "passed (" in text
    assert "why:" in text


def test_without_stacks_the_reason_and_the_doubt_are_said():
    blind = watch(Absent("ptrace refused: run as root"))
    text = render(judge(blind), blind)
    assert "No verdict on the training loop: ptrace refused" in text
    assert "less certain" in text


def test_an_interrupted_watch_says_so():
    cut = watch({1: "backward*100"}, interrupted=True)
    assert "until it was interrupted" in render(judge(cut), cut)


def test_the_document_carries_the_watch_and_the_end_of_the_command():
    document = to_json(dump(judge(SLOW)), SLOW, {"exit_code": 3, "signal": None})
    assert document["schema"] == "gpudoc.doctor.v1"
    assert document["watch"]["ranks"][0]["phases"]["waiting for data"] == 0.6
    assert document["command"] == {"exit_code": 3, "signal": None}
    assert "command" not in to_json(dump(judge(SLOW)), SLOW, None)
    json.dumps(document)


def test_the_file_holds_what_its_name_says(tmp_path):
    save_text(tmp_path / "a.json", "text", {"x": 1})
    save_text(tmp_path / "a.txt", "text", {"x": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    assert (tmp_path / "a.txt").read_text() == "text"
    with pytest.raises(GpudocError, match="cannot be written"):
        save_text(tmp_path / "no" / "a.txt", "text", {})


def test_nothing_to_judge_is_one_line():
    assert render_nothing(judge(SLOW)).count("\n") == 1


def on_screen():
    shape = frame.form(piped=frame.WIDE)
    frame.show(render(judge(SLOW), SLOW, width=shape.width, boxed=shape.boxed))


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_the_bottleneck_stands_in_a_box_and_no_line_is_broken_in_a_word(columns):
    screen = shown(on_screen, columns)
    assert screen.code == 0
    assert screen.coloured
    assert not shown(on_screen, columns, {"NO_COLOR": "1"}).coloured
    top = next(n for n, line in enumerate(screen.lines) if line.startswith("╭"))
    assert screen.lines[top + 1].startswith("│ ! 60 % of the time")
    assert "too_few_workers, " in screen.text
    assert screen.raw.count("\n") == len(screen.lines)


def test_what_is_said_again_at_the_end_is_the_cause_and_its_first_fix():
    lines = render_again(judge(SLOW)).splitlines()
    assert lines[0] == "What gpudoc found while the job was running:"
    assert "[too_few_workers, " in lines[1]
    assert lines[2].startswith("  fix: Use more workers")
    assert render_again(dataclasses.replace(judge(SLOW), findings=())) == ""
