"""Write doctor's report to the screen, as one JSON document, as Markdown to paste, to a page or to a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoc.control_characters import to_json
from gpudoc.doctor.model import Observation, Report
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Gpu, Machine
from gpudoc.facts.readers.model import ENGLISH
from gpudoc.facts.redact import Redactor, whole
from gpudoc.frozen import dataclass
from gpudoc.render import console, frame
from gpudoc.render.doctor import by_area, cards_of, headline, marked, render, sureness
from gpudoc.render.frame import in_own_language
from gpudoc.render.gpus import gpu_table, holder_table

if TYPE_CHECKING:
    from gpudoc.render.table import Table

# one letter of each language, to test whether the terminal can print it
_LETTER = {"zh": "\u5b58", "ru": "\u0436"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The outputs that the user wants; `redact` removes the names of people and machines from written output."""

    json: bool = False
    markdown: bool = False
    html: Path | None = None
    out: Path | None = None
    sarif: Path | None = None
    sources: tuple[str, ...] = ()
    verbose: bool = False
    plain: bool = False
    redact: bool = True

    @property
    def leaves(self) -> bool:
        """Whether the report goes anywhere but to the terminal."""
        return self.json or self.markdown or any(self.files)

    @property
    def files(self) -> tuple[Path | None, ...]:
        """The files to write besides the terminal's output."""
        return self.out, self.html, self.sarif

    def refuse_sarif(self, what: str) -> None:
        """Raise GpudocError if SARIF is wanted for a source without lines to name."""
        if self.sarif is not None:
            raise GpudocError(f"--sarif works for texts and this machine, not for {what}", hint="--json or --html FILE")


def redactor_of(report: Report) -> Redactor:
    """A Redactor that knows this process's names, those of users who hold a GPU, and those of a job's nodes."""
    from gpudoc.doctor.causes.holders import holders_of

    redactor = Redactor.of_this_process()
    for gpu in report.machine.shown_gpus:
        for process in holders_of(gpu):
            if not isinstance(process.user, Absent):
                redactor.know_user(process.user)
    hosts = dict.fromkeys(host for end in (report.job.attempts if report.job is not None else ()) for host in end.hosts)
    for number, host in enumerate(hosts, 1):
        redactor.know_host(host, f"<host-{number}>")
    return redactor


def shareable(report: Report, *, redact: bool) -> Report:
    """The report as it may leave the machine: without names of people and machines, unless the user wants them."""
    if not redact:
        return report
    return redactor_of(report).clean(replace(report, machine=_without_names(report.machine)))


def show(report: Report, output: Output) -> None:
    """Print and write the report; GpudocError if a file cannot be written."""
    if output.leaves:
        clean = shareable(report, redact=output.redact)
        if output.html is not None:
            from gpudoc.render.doctor_page import render_page
            from gpudoc.render.page import save_page

            save_page(output.html, render_page(clean))
        if output.out is not None:
            _save(output.out, clean)
        if output.sarif is not None:
            from gpudoc.render.sarif import find_places, render_sarif
            from gpudoc.writing import write_whole

            places = find_places(report, output.sources, Path.cwd())
            write_whole(output.sarif, to_json(render_sarif(clean, places)) + "\n", hint="--sarif doctor.sarif")
        if output.json:
            from gpudoc.doctor.document import dump

            console.print_json(whole(dump(clean)))
        elif output.markdown:
            shown = _sayable(clean)
            console.stdout(plain=True).print(render_markdown(shown), end="", soft_wrap=True)
    if not (output.json or output.markdown):
        report = _sayable(report)
        shape = frame.form(output.plain)
        frame.show(render(report, verbose=output.verbose, width=shape.width, boxed=shape.boxed), plain=output.plain)
    console.say_written(*output.files)


def _sayable(report: Report) -> Report:
    """The report, in English if the terminal cannot print the letters of its language."""
    known = console.can_print(sys.stdout, _LETTER.get(report.language, ""))
    return report if known else replace(report, language=ENGLISH)


def _without_names(machine: Machine) -> Machine:
    """The machine with its containers by number only, since users often name them after themselves."""
    if isinstance(machine.gpus, Absent):
        return machine
    return replace(machine, gpus=tuple(_with_numbers(gpu) for gpu in machine.gpus))


def _with_numbers(gpu: Gpu) -> Gpu:
    from gpudoc.doctor.causes.holders import number_of

    if isinstance(gpu.processes, Absent):
        return gpu
    known = (
        p if isinstance(p.container, Absent) else replace(p, container=number_of(p.container)) for p in gpu.processes
    )
    return replace(gpu, processes=tuple(known))


def render_markdown(report: Report) -> str:
    """The report as Markdown for an issue: verdict, findings with evidence and commands."""
    from gpudoc.render import markdown

    # gpudoc and scripts recognise a report by the first line
    verdict = report.verdict
    report, say = in_own_language(report)
    lines = [f"**gpudoc doctor: {verdict}**", "", markdown.prose(headline(report, say)), ""]
    for table in _tables(report):
        lines += [*markdown.table(table), ""]
    if report.job is not None:
        from gpudoc.render.ranks import job_markdown

        lines += job_markdown(report.job)
    for finding in report.findings:
        lines += [
            f"### {markdown.prose(f'{finding.title}{cards_of(finding)}')}",
            "",
            f"{markdown.code(finding.id)}, {say(finding.severity)}, {sureness(finding, say)}. "
            + markdown.prose(finding.why),
            "",
        ]
        lines += map(_observed, finding.evidence)
        for title in finding.explains:
            lines.append("- " + say("explains: {}", markdown.prose(title)))
        for remedy in finding.fix:
            lines += ["", markdown.prose(marked(remedy, say))]
            if remedy.run:
                lines += markdown.fence(remedy.run)
        lines.append("")
    lines += map(_observed, report.unexplained)
    for fact in report.deciding_facts:
        lines.append("- " + say("collect next: {}", markdown.prose(fact)))
    lines += map(_observed, report.understood)
    for answer in report.answers:
        lines += ["", markdown.prose(answer.say), *(markdown.fence(answer.run) if answer.run else [])]
    named = f" ({by_area(report.passed)})" if report.passed else ""
    lines.append(f"{len(report.passed)} checks passed{named}, {len(report.skipped)} not checked.")
    return "\n".join(lines) + "\n"


def _tables(report: Report) -> tuple[Table, ...]:
    """The tables of the GPUs and of the processes that hold them, as far as the report knows them."""
    return tuple(t for t in (gpu_table(report.machine), holder_table(report.machine)) if t is not None)


def _save(path: Path, report: Report) -> None:
    from gpudoc.writing import write_whole

    match path.suffix.lower():
        case ".json":
            from gpudoc.doctor.document import dump

            text = to_json(dump(report)) + "\n"
        case ".md" | ".markdown":
            text = render_markdown(report)
        case ".html" | ".htm":
            from gpudoc.render.doctor_page import render_page

            text = render_page(report)
        case _:
            text = render(report, verbose=True)
    write_whole(path, text, hint="name a file in an existing folder")


def _observed(seen: Observation) -> str:
    from gpudoc.render import markdown

    where = f" ({markdown.prose(seen.origin)})" if seen.origin else ""
    return f"- {markdown.prose(seen.fact)}: {markdown.code(seen.value)}{where}"
