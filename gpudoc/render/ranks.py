"""Doctor's output for a job of many ranks: the rank that failed first, with the reason, its followers, repetitions."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.facts.readers.job_end import AttemptEnd
from gpudoc.facts.readers.job_failure import JobFailure
from gpudoc.render import markdown
from gpudoc.render.frame import fold
from gpudoc.render.page import Note, Section
from gpudoc.render.table import Table
from gpudoc.units import format_count, format_ranks, format_seconds

_MOST_FOLLOWERS, _MOST_ATTEMPTS, _MOST_QUOTED = 3, 8, 140
_INDENT = "         "


def job_lines(job: JobFailure, width: int) -> list[str]:
    """The block of the first screen: a labelled line for each known fact."""
    lines = fold(_headline(job), width)
    for label, text in _facts(job):
        lines += fold(f"  {label + ':':7}{text}", width, indent=_INDENT)
    lines += fold(f"  do:    {job.do}", width, indent=_INDENT) if job.do else []
    lines += [f"    $ {part}" for part in job.run.splitlines()]
    return [*lines, ""]


def _headline(job: JobFailure) -> str:
    end = job.judged
    hosts = f" on {format_count(end.num_hosts, 'node')}" if end.num_hosts > 1 else ""
    parts = [f"one job: {format_count(end.num_ranks, 'rank')}{hosts}"]
    parts += [format_count(job.num_files, "log")] if job.num_files > 1 else []
    parts += [format_count(len(job.attempts), "attempt")] if len(job.attempts) > 1 else []
    return ", ".join(parts)


def _facts(job: JobFailure) -> Iterator[tuple[str, str]]:
    """The known facts of the judged attempt, each with its label."""
    end = job.judged
    yield "first", f"{job.says} ({job.confidence:.0%} sure)" if job.confidence else _unknown(end)
    if end.text:
        yield "seen", f"{_quoted(end.text)}  ({end.origin})"
    if job.by:
        yield "by", job.by
    if end.alike:
        yield "note", f"{format_count(1 + len(end.others), 'rank')} show the same error: its cause is common to them"
    for one in end.followers[:_MOST_FOLLOWERS]:
        which = format_ranks(one.ranks)
        yield "then", f"{format_count(len(one.ranks), 'rank')} {one.says}: {which}  ({one.origin})"
    if end.silent:
        yield "note", f"{format_ranks(end.silent)} wrote no line at all"
    if end.observed_first not in (None, end.rank):
        yield "note", f"torchrun's summary names rank {end.observed_first}, but that is only the one it noticed first"
    if len(job.attempts) > 1:
        for one_end in job.attempts[-_MOST_ATTEMPTS:]:
            yield "run", _attempt(one_end)
        yield "again", job.again


def _unknown(end: AttemptEnd) -> str:
    """The words for an unknown first rank, with the ranks that it may have been."""
    if not end.others:
        return "not known: no line says which rank failed first, and every sign may be a consequence of another rank"
    return f"not known: {format_ranks(end.others)} {end.says or 'ended'}, and nothing shows which was first"


def _attempt(end: AttemptEnd) -> str:
    """'2: rank 17 on node03 raised an exception, at step 1200, after 43 min'."""
    who = "" if end.rank is None else f"rank {end.rank}"
    where = " on ".join(filter(None, (who, end.host_name))) or "a rank that is not known"
    parts = [f"{end.number + 1}: {where} {end.says or 'ended'}"]
    parts += [f"at step {end.step}"] if end.step is not None else []
    parts += [f"after {format_seconds(end.after_s)}"] if end.after_s is not None else []
    return ", ".join(parts)


def _quoted(text: str) -> str:
    return text if len(text) <= _MOST_QUOTED else text[: _MOST_QUOTED - 3] + "..."


def job_markdown(job: JobFailure) -> list[str]:
    """The block as a list of Markdown."""
    lines = [markdown.prose(_headline(job)), ""]
    lines += [f"- {label}: {markdown.prose(text)}" for label, text in _facts(job)]
    if job.do:
        lines += ["", markdown.prose(job.do), *(markdown.fence(job.run) if job.run else [])]
    return [*lines, ""]


def job_section(job: JobFailure) -> Section:
    """The block as a part of the page."""
    table = Table(headings=("", "what is known"), rows=tuple(_facts(job)))
    notes = [Note(kind="info", title="What to do next", steps=((job.do, job.run),))] if job.do else []
    return Section(f"Which rank failed first: {_headline(job)}", (table, *notes))
