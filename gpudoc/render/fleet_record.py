"""Doctor's output for a saved record of a fleet."""

from __future__ import annotations

from gpudoc.control_characters import to_json
from gpudoc.doctor import document
from gpudoc.facts.redact import private, whole
from gpudoc.fleet.report import FleetReport, comparison_to_json, save_report, verdict_to_json
from gpudoc.render.console import print_json, stdout
from gpudoc.render.doctor_output import Output, render_markdown, shareable
from gpudoc.render.fleet import print_screen
from gpudoc.render.fleet_page import save as save_page
from gpudoc.writing import write_whole


def show_saved(report: FleetReport, output: Output) -> None:
    """Show a saved record with bench's screen and page; its JSON and Markdown are doctor's."""
    found = {**document.dump(report.to_doctor()), "fleet": verdict_to_json(report.verdict)}
    if report.comparison is not None:
        found["comparison"] = comparison_to_json(report.comparison)
    plain = private(found) if output.redact else whole(found)
    shared = shareable(report.to_doctor(), redact=output.redact)
    if output.html is not None:
        save_page(output.html, report)
    if output.out is not None and output.out.suffix.lower() in (".md", ".markdown"):
        write_whole(output.out, render_markdown(shared), hint="--out fleet.md")
    elif output.out is not None and output.out.suffix.lower() == ".prom":
        save_report(output.out, report)
    elif output.out is not None:
        write_whole(output.out, to_json(plain) + "\n", hint="--out verdict.json")
    if output.json:
        print_json(plain)
    elif output.markdown:
        stdout(plain=True).print(render_markdown(shared), end="", soft_wrap=True)
    else:
        print_screen(report, stdout(output.plain), verbose=output.verbose)
