"""What is said of a command's run: figures, shares, what was applied, why it died; and never on its stdout."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys

import pytest

from gpudoc.render import script_run
from gpudoc.render.script_run import RunScreen, document_of, last_words, status_line
from gpudoc.script.apply import Applied
from gpudoc.script.hook import ProcessSeen
from gpudoc.script.messages import HookOrder, LoaderOrder
from gpudoc.script.run import RunEnd, RunTimes, Status
from gpudoc.train.events import Hung
from tests.script.told import loader, out_of_memory, start, steps

STATUS = Status(seconds=72.0, ranks=1, steps=1240, samples_per_s=512.0, wait_share=0.04, peak_bytes=3 << 30)
SPLIT = RunTimes(start=10.0, data_wait=4.0, steps=50.0, evaluate=0.0, end=8.0)


def finished(**more):
    order = HookOrder(purpose="run", keys=("train.py:4",), loader=LoaderOrder(num_workers=4))
    plain = {"code": 0, "interrupted": False, "seconds": 72.0, "status": STATUS, "split": SPLIT}
    seen = (ProcessSeen("0-1", start=start(), loaders=(loader(),), steps=(steps(0, 2, rank=None, seconds=1.0),)),)
    return RunEnd(**{**plain, "seen": seen, "applied": Applied(words=("x",), order=order), **more})


def test_the_status_is_one_line():
    assert status_line(STATUS) == "step 1,240 · 512 samples/s · peak memory 3 GiB · 4% waiting for data · 1 min 12 s"


def test_ranks_are_named_and_what_is_not_known_is_left_out():
    two = Status(seconds=1.0, ranks=2, steps=3, samples_per_s=8.0, wait_share=None, peak_bytes=1 << 30)
    assert "8 samples/s on 2 ranks · peak memory 1 GiB a rank" in status_line(two)
    assert "samples/s" not in status_line(
        Status(seconds=1.0, ranks=1, steps=3, samples_per_s=None, wait_share=None, peak_bytes=None)
    )


def test_where_the_time_went_and_what_was_applied():
    seen = loader(
        applied={"num_workers": 4}, refused={"persistent_workers": "the data set is changed"}, notes=("mind",)
    )
    rank = ProcessSeen("0-1", loaders=(seen,), steps=(steps(0, 2, rank=None, seconds=1.0),), asides=("lost",))
    text = "\n".join(last_words(finished(seen=(rank,))))
    assert "the command ended with code 0 after 1 min 12 s" in text
    assert "start 10 s (14%) · waiting for data 4 s (6%) · steps 50 s (69%) · end 8 s (11%)" in text
    assert "train.py:4: applied num_workers 4" in text
    assert "train.py:4: persistent_workers left unchanged: the data set is changed" in text
    assert "train.py:4: mind" in text
    assert "not watched to the end: lost" in text


@pytest.mark.parametrize("finite", [True, False, None])
def test_a_run_whose_weights_are_nan_at_the_end_says_that_nothing_is_learned(finite):
    rank = ProcessSeen("0-1", start=start(), steps=(steps(0, 2, rank=None, seconds=1.0, finite=finite),))
    text = "\n".join(last_words(finished(seen=(rank,))))
    assert ("its weights are NaN or infinite at the end, so it no longer learns" in text) is (finite is False)


def test_a_loader_that_was_never_built_is_said():
    other = loader(key="eval.py:9", place="eval.py:9")
    rank = ProcessSeen("0-1", start=start(), loaders=(other,), steps=(steps(0, 2, rank=None, seconds=1.0),))
    text = "\n".join(last_words(finished(seen=(rank,))))
    assert "no loader in the profile was built, so none of its settings were applied" in text


def test_a_loader_that_has_the_profiles_settings_itself_was_built():
    text = "\n".join(last_words(finished()))
    assert "train.py:4: already has the settings of the profile" in text
    assert "none of its settings" not in text


@pytest.mark.parametrize(
    ("seen", "code", "says"),
    [
        ((), 0, "none of its Python processes imported torch"),
        ((), 1, "it ended before torch was imported"),
        ((ProcessSeen("0-1", start=start()),), 0, "no optimizer step was seen"),
    ],
)
def test_a_command_without_steps_is_told_what_was_missing(seen, code, says):
    assert says in last_words(finished(seen=seen, code=code, status=None, split=None))


def test_a_death_for_want_of_memory_has_the_allocators_numbers():
    rank = ProcessSeen("1-1", start=start(1), steps=(steps(0, 2, rank=1, seconds=1.0),), error=out_of_memory())
    lines = last_words(
        finished(
            seen=(rank, ProcessSeen("0-2")), code=-9, left=("sh (pid 7)",), stuck=("cp (pid 8)",), kernel_killed=True
        )
    )
    assert lines[0].startswith("the command ended by SIGKILL after 1 min 12 s: the kernel killed it")
    assert "rank 1: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." in lines
    assert "rank 1: the allocator: allocated 3 GiB, reserved 5 GiB" in lines
    assert lines[-2] == "sh (pid 7) outlived the command and was killed"
    assert lines[-1].startswith("cp (pid 8) outlived the command and cannot be killed")


def test_the_document_says_the_same():
    found = document_of(finished(code=-9))
    assert found["schema"] == "gpudoc.train.v1"
    assert found["status"] == "failed"
    assert found["command"] == {"exit_code": None, "signal": 9}
    assert found["seconds"] == {"start": 10.0, "data_wait": 4.0, "steps": 50.0, "evaluate": 0.0, "end": 8.0}
    assert found["loaders"][0]["at"] == "train.py:4"
    assert document_of(finished())["status"] == "finished"
    assert document_of(finished(interrupted=True))["status"] == "interrupted"


def test_nothing_of_ours_is_on_stdout(capfd):
    screen = RunScreen(plain=True)
    screen.begin(Applied(words=("x",), order=HookOrder(purpose="run"), sentences=("no profile",)))
    screen.output(1, b"the script's own\n")
    for seconds in (5.0, 11.0, 12.0, 23.0):
        screen.status(Status(seconds=seconds, ranks=1, steps=1, samples_per_s=None, wait_share=None, peak_bytes=None))
    assert screen.show(finished(code=3)) == 3
    out, err = capfd.readouterr()
    assert out == "the script's own\n"
    assert err.startswith("gpudoc: no profile\ngpudoc: step 1 · 11 s\ngpudoc: step 1 · 23 s\ngpudoc: the command ended")


def test_with_json_stdout_is_one_document(capfd):
    screen = RunScreen(as_json=True)
    screen.output(1, b"the script's own\n")
    screen.show(finished())
    out, err = capfd.readouterr()
    assert json.loads(out)["steps"] == 1240
    assert err == "the script's own\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_status_is_drawn_over_and_gives_way(monkeypatch):
    drawn = []
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(script_run.os, "isatty", lambda number: True)
    monkeypatch.setattr(script_run.os, "get_terminal_size", lambda number: os.terminal_size((30, 24)))
    monkeypatch.setattr(script_run, "_write", lambda number, data: drawn.append(data))
    screen = RunScreen()
    screen.status(STATUS)
    assert drawn == [status_line(STATUS)[:29].encode()]
    drawn.clear()
    screen.output(1, b"10%|#")
    assert drawn == [b"\r" + b" " * 29 + b"\r", b"10%|#"]
    drawn.clear()
    # a bar of the script's own is not drawn over
    screen.status(STATUS)
    assert drawn == []
    screen.say("a line")
    assert drawn == [b"\ngpudoc: a line\n"]


def test_a_reader_that_is_gone_is_the_commands_to_notice():
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        script_run._write(writer, b"x")
    os.close(writer)


def test_a_command_that_was_ended_for_a_hang_says_which_and_has_failed():
    hung = Hung(
        step=20, still_s=38.0, usual_s=0.1, ranks=(1,), call="", at="train.py:40 in main()", say="nothing moved"
    )
    over = dataclasses.replace(hung, step=7)
    ended = finished(code=-15, hangs=(over,), ended_for=hung)
    assert ended.exit_code == 1
    assert "--on-hang end: nothing moved" in last_words(ended)
    document = document_of(ended)
    assert (document["status"], [row["step"] for row in document["hangs"]]) == ("failed", [7, 20])
    assert document["hangs"][1]["hang"]["ranks"] == [1]
    assert document_of(finished())["hangs"] == []


def test_the_document_is_what_the_schema_says():
    jsonschema = pytest.importorskip("jsonschema")
    from tools.schemas import schemas

    validator = jsonschema.Draft202012Validator(schemas()["gpudoc.train.v1"])
    for ended in (finished(), finished(code=-9), finished(interrupted=True, status=None, split=None)):
        validator.validate(json.loads(json.dumps(document_of(ended))))
    assert not validator.is_valid({**document_of(finished()), "elapsed_s": "long"})
