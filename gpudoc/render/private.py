"""A watched job as it may leave the machine: the same places and processes, without what says who and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Frame, Glance, GpuTrack, GpuUser, ProcessTrack, Stacks, Watch
from gpudoc.facts.redact import Redactor

_Clean = Callable[[str], str]


def private_watch(watch: Watch, redactor: Redactor) -> Watch:
    """`watch` with every name, path and line of code redacted; the same redactor gives a report the same names."""
    # the same few files stand in thousands of frames
    clean = cache(redactor.text)
    return replace(
        watch,
        stacks=watch.stacks if isinstance(watch.stacks, Absent) else _stacks(watch.stacks, clean),
        glances=_glances(watch.glances, clean),
        processes=tuple(_process(process, clean) for process in watch.processes),
        gpus=_gpus(watch.gpus, clean),
        command=clean(watch.command),
        directory=_text(watch.directory, clean),
    )


def _text(told: Fact[str], clean: _Clean) -> Fact[str]:
    return told if isinstance(told, Absent) else clean(told)


def _frame(frame: Frame, clean: _Clean) -> Frame:
    return replace(frame, file=clean(frame.file))


def _stacks(stacks: Stacks, clean: _Clean) -> Stacks:
    return replace(
        stacks,
        frames=tuple(_frame(frame, clean) for frame in stacks.frames),
        threads=tuple(replace(thread, name=clean(thread.name)) for thread in stacks.threads),
        lines={(clean(file), number): clean(line) for (file, number), line in stacks.lines.items()},
        accumulations={(clean(file), number): clean(line) for (file, number), line in stacks.accumulations.items()},
    )


def _glances(glances: Fact[tuple[Glance, ...]], clean: _Clean) -> Fact[tuple[Glance, ...]]:
    if isinstance(glances, Absent):
        return glances
    return tuple(replace(g, frames=tuple(_frame(frame, clean) for frame in g.frames)) for g in glances)


def _process(process: ProcessTrack, clean: _Clean) -> ProcessTrack:
    return replace(
        process,
        name=clean(process.name),
        command=clean(process.command),
        blocked={clean(where): count for where, count in process.blocked.items()},
        thread_settings={name: clean(setting) for name, setting in process.thread_settings.items()},
    )


def _gpus(gpus: Fact[tuple[GpuTrack, ...]], clean: _Clean) -> Fact[tuple[GpuTrack, ...]]:
    if isinstance(gpus, Absent):
        return gpus
    return tuple(gpu if isinstance(gpu.users, Absent) else replace(gpu, users=_users(gpu.users, clean)) for gpu in gpus)


def _users(users: tuple[GpuUser, ...], clean: _Clean) -> tuple[GpuUser, ...]:
    return tuple(replace(user, name=_text(user.name, clean)) for user in users)
