"""A watched job as it may leave the machine: the same places and processes, without what says who and where."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.doctor.live.judge import judge
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame, GpuUser
from gpudoc.facts.redact import Redactor
from gpudoc.render.watch import render
from gpudoc.render.watch_page import render_page
from tests.facts.live.made import gpu, track, watch

SECRET = ("maryjane", "quietbox", "hf_abcdefghijklmnopqrstuvwxyz0123456789")


def told():
    seen = watch({1: "wait*60 backward*30 python*40"}, [track(cpu_s=8)])
    assert not isinstance(seen.stacks, Absent)
    frames = tuple(
        Frame(f.function, f.file.replace("/home/me/", "/home/maryjane/"), f.line) for f in seen.stacks.frames
    )
    lines = {
        (file.replace("/home/me/", "/home/maryjane/"), number): f"{line}  # token={SECRET[2]}"
        for (file, number), line in seen.stacks.lines.items()
    }
    return replace(
        seen,
        stacks=replace(seen.stacks, frames=frames, lines=lines),
        processes=tuple(
            replace(
                p, command=f"python /home/maryjane/train.py --hub-token {SECRET[2]}", blocked={"read quietbox:/data": 3}
            )
            for p in seen.processes
        ),
        gpus=(replace(gpu(), users=(GpuUser(pid=9, name="maryjane"),)),),
        directory="/home/maryjane/run",
        command=f"python /home/maryjane/train.py --hub-token {SECRET[2]}",
    )


def redactor():
    return Redactor(user="maryjane", host="quietbox", home="/home/maryjane")


def test_page_and_text_of_a_watched_job_name_nobody():
    seen = told()
    assert "maryjane" in render_page(judge(seen), seen)
    one = redactor()
    clean = one.clean(seen)
    report = one.clean(judge(seen))
    shown = render_page(report, clean) + render(report, clean, verbose=True) + repr(clean)
    assert not [word for word in SECRET if word in shown]


def test_what_the_job_did_stays_the_same():
    seen = told()
    clean = redactor().clean(seen)
    assert [f.id for f in judge(clean).findings] == [f.id for f in judge(seen).findings]


def test_what_was_not_seen_stays_absent():
    seen = watch({1: "backward*5"}, [track()])
    bare = replace(seen, stacks=Absent("no sampler"), gpus=Absent("no NVML"), directory=Absent("gone"))
    clean = redactor().clean(bare)
    assert (clean.stacks, clean.gpus, clean.directory) == (bare.stacks, bare.gpus, bare.directory)
