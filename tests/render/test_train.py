import pathlib
from dataclasses import replace

import pytest

from gpudoc.errors import ExitCode
from gpudoc.render.train import Screen, describe, last_words, opening, progress_line, show
from gpudoc.train.events import PHASES, Evaluated, Finished, Progressed, Rescued, Said, Saved, Started
from gpudoc.train.meter.meters import Split
from gpudoc.train.ranks.pace import Slow
from gpudoc.train.settings import TrainSettings
from tests.terminal import shown


def split(**seconds):
    return Split({**dict.fromkeys(PHASES, 0.0), **seconds})


def progressed(step=10, **changes):
    figures = {
        "step": step,
        "end_step": 20,
        "epoch": 0.5,
        "samples": 640,
        "loss": 1.25,
        "lr": 3e-4,
        "samples_per_s": 1234.0,
        "split": split(data_wait=1.0, compute=3.0),
        "memory_peak_bytes": 3 << 29,
        "grad_norm": 0.5,
        "scale": None,
        "num_skipped": 0,
    }
    return Progressed(**{**figures, **changes})


def started(**changes):
    figures = {
        "name": "mine",
        "run_dir": pathlib.Path("runs/mine"),
        "device": "cpu",
        "settings": TrainSettings(global_batch=64, micro_batch=16, accumulation=4, precision="bf16"),
        "num_parameters": 1_250_000,
        "num_samples": 10_000,
        "steps_per_epoch": 157,
        "step": 0,
        "end_step": 20,
        "world": 1,
        "resumed_from": None,
    }
    return Started(**{**figures, **changes})


def finished(**changes):
    summary = {
        "status": "finished",
        "steps": 20,
        "end_step": 20,
        "final_loss": 0.75,
        "evaluation": {"step": 20, "loss": 0.8},
        "seconds": dict(split(compute=10.0).seconds),
        "samples_per_s": 128.0,
        "verdict": "time went into 100% computing",
        "advice": [{"say": "not tuned", "run": "gpudoc tune --model mine.yaml"}],
        "run_dir": "runs/mine",
        "rescues": [],
    }
    return Finished(summary={**summary, **changes}, exit_code=ExitCode.OK, reason="", go_on=None)


def test_a_step_in_one_line():
    line = progress_line(progressed())
    assert line.startswith("step 10/20  loss 1.2500")
    assert "1,234 samples/s" in line
    assert "1.5 GiB" in line
    assert "data 25%" in line


def test_a_line_names_every_phase_that_took_its_time():
    line = progress_line(progressed(split=split(data_wait=1.0, compute=5.0, evaluate=4.0)))
    assert "data 10% compute 50% evaluate 40% other 0%" in line
    assert "checkpoint" not in line


def test_a_stream_without_a_length_is_called_one():
    text = "\n".join(opening(replace(started(), num_samples=None, steps_per_epoch=None), verbose=False))
    assert "a stream of samples, steps 0 -> 20" in text
    assert "an epoch" not in text


def test_skipped_steps_are_said():
    assert "skipped 3 not finite" in progress_line(progressed(num_skipped=3))


def test_the_opening_says_what_runs_on_what():
    text = "\n".join(opening(started(), verbose=False))
    assert "cpu, bf16, global batch 64 = micro batch 16 x 4" in text
    assert "10,000 samples" in text


def test_verbose_shows_every_setting_and_its_source():
    text = "\n".join(opening(started(), verbose=True))
    assert "prefetch_factor" in text
    assert "default" in text


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Said("mind this", warning=True), "! mind this"),
        (
            Evaluated(step=5, loss=1.0, figures={"bits_per_byte": 1.44}, num_samples=9, seconds=1.0, best=True),
            "evaluated after step 5: loss 1.0000  bits_per_byte 1.440  (best)",
        ),
        (Saved(step=5, path=pathlib.Path("c/step-5"), num_bytes=1 << 20, seconds=0.5), "saved c/step-5 (1 MiB"),
        (
            Rescued(step=5, from_batch=64, to_batch=32, phase="train", shapes="float32[64, 8]"),
            "micro batch 64 -> 32",
        ),
    ],
)
def test_every_event_has_its_line(event, says):
    assert says in describe(event)


def test_the_last_words_hold_result_time_advice_and_place():
    text = last_words(finished())
    assert "final loss 0.7500" in text
    assert "eval loss 0.8000 after step 20" in text
    assert "gpudoc tune --model mine.yaml" in text
    assert text.endswith("summary: runs/mine/summary.json")


def test_the_last_words_hold_the_memory_and_what_was_compiled_again():
    again = [{"function": "forward (net.py:3)", "times": 4, "reason": "size mismatch at index 0"}]
    text = last_words(
        finished(
            memory={"step": 3, "peak_bytes": 3 << 20, "bytes": {"weights": 1 << 20, "rest": 2 << 20}},
            compilations={"count": 6, "recompilations": 4, "seconds": 12.0, "again": again},
        )
    )
    assert "memory in step 3: 3 MiB = weights 1 MiB + " in text
    assert (
        "6 compilations took 12 s; forward (net.py:3) was compiled 4 more times, most recently because size mis" in text
    )


def test_a_stopped_run_says_how_to_go_on():
    event = Finished(
        summary={**finished().summary, "status": "stopped", "steps": 7},
        exit_code=ExitCode.RESUME,
        reason="SIGTERM received",
        go_on="gpudoc train --resume runs/mine",
    )
    text = last_words(event)
    assert "stopped at step 7 of 20: SIGTERM received; state saved" in text
    assert text.endswith("continue with: gpudoc train --resume runs/mine")


def test_results_go_to_stdout_and_the_rest_to_stderr(capsys):
    code = show(iter([started(), progressed(20), finished()]), Screen(plain=True))
    captured = capsys.readouterr()
    assert code == 0
    assert "final loss" in captured.out
    assert "step 20/20" in captured.err
    assert "step 20/20" not in captured.out


def test_a_quiet_screen_says_nothing(capsys):
    assert show(iter([started(), finished()]), Screen(quiet=True)) == 0
    assert capsys.readouterr() == ("", "")


def events():
    yield Said("trains on the CPU: this machine has no GPU")
    yield Said(
        "a warning that is far too long for one line of a terminal with eighty columns, so it goes on", warning=True
    )
    yield started(run_dir=pathlib.Path("runs/a_name_that_no_terminal_breaks"))
    yield progressed(10)
    yield progressed(20)
    yield replace(
        finished(), go_on="gpudoc train --model mine.yaml --run-dir runs/a_name_that_no_terminal_breaks --steps 40"
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_on_a_terminal_the_header_is_folded_between_words_and_the_last_step_stays(columns, colour):
    screen = shown(lambda: show(events(), Screen()), columns, colour)
    assert screen.code == 0
    assert screen.coloured is not bool(colour)
    assert "building the model" in screen.raw
    assert "building the model" not in screen.text
    assert any(line.startswith("step 20/20  loss 1.2500") for line in screen.lines)
    assert "runs/a_name_that_no_terminal_breaks" in screen.text
    assert "! a warning that is far too long" in screen.text
    folded = [line for line in screen.lines if not line.startswith(("continue with", "  runs", "summary"))]
    assert all(len(line) <= columns for line in folded)
    # the command to copy is one line of text, wrapped by the terminal alone
    assert "gpudoc train --model mine.yaml --run-dir runs/a_name_that_no_terminal_breaks --steps 40\r\n" in screen.raw


def test_a_terminal_that_is_asked_to_be_plain_draws_nothing_and_says_warnings_in_words():
    screen = shown(lambda: show(events(), Screen(plain=True)))
    assert not screen.moves
    assert "warning: a warning that is" in screen.text
    assert "step 10/20" in screen.text


def test_a_slow_rank_stands_in_the_line_of_a_step():
    slow = Slow(rank=3, step_s=0.3, others_s=0.2, where="computing")
    assert progress_line(progressed(slow=slow)).endswith("rank 3 is 1.5x slower")
    assert "slower" not in progress_line(progressed())
