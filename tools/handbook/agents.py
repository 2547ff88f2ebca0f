"""What coding agents read before they use gpudoc: a skill, a note for a repository, and the list of all pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.errors import ExitCode
from gpudoc.knowledge.cause_rows import AREAS, areas
from tools.handbook.page import Page

_WHAT = "Find why PyTorch training on a GPU does not start, fails, runs out of memory or is slow, and how to mend it."
_ASK = {
    "an error, a traceback, a log, nvidia-smi or dmesg": "gpudoc doctor LOG --json",
    "torch does not see the GPU": "gpudoc doctor --json",
    "a job that runs and is slow or hangs": "gpudoc doctor --pid PID --json",
    "what a finding means": "gpudoc doctor --explain ID --json",
    "whether a model fits a GPU": "gpudoc tune --model cfg.yaml --target 24GiB --json",
    "a slow data loader (this runs the script)": "gpudoc tune --only loader --budget 3m --json -- python train.py",
}
_RULES = (
    "The first finding is the most likely root cause; `is_guess` marks what rests on words alone. Say how sure it is.",
    "`run` in a step of `fix` is a command to propose. Ask before one with `needs_root` or `disruptive`.",
    "`unknown` means that no cause explains the evidence: say so, and collect what `deciding_facts` names.",
    "Reports are redacted. Do not ask for --no-redact on behalf of the user.",
)


def write_agents(site: Path, pages: Sequence[Page]) -> None:
    """Write SKILL.md, AGENTS.md and llms.txt beside the pages of the built site."""
    (site / "SKILL.md").write_text(skill(), "utf-8")
    (site / "AGENTS.md").write_text(note(), "utf-8")
    (site / "llms.txt").write_text(page_list(pages), "utf-8")


def skill() -> str:
    """One skill: GPU training fails or is slow."""
    counts = [f"{area} ({list(areas().values()).count(area)})" for area in AREAS]
    head = ["---", "name: gpu-training-fails-or-is-slow", f"description: {_WHAT}", "---", ""]
    return "\n".join([*head, "# GPU training fails or is slow", "", *_how(), "", f"Areas: {', '.join(counts)}."]) + "\n"


def note() -> str:
    """What a repository that trains on GPUs tells an agent."""
    served = "With an MCP client: `gpudoc mcp` (install gpudoc with the extra `mcp`)."
    return "\n".join(["# GPU trouble in this repository", "", _WHAT, "", *_how(), "", served]) + "\n"


def _how() -> list[str]:
    rows = [f"- {what}: `{command}`" for what, command in _ASK.items()]
    codes = ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
    return ["Ask:", "", *rows, "", "Then:", "", *(f"- {rule}" for rule in _RULES), f"- Exit codes: {codes}."]


def page_list(pages: Sequence[Page]) -> str:
    """Every page with its title, as llmstxt.org describes such a file."""
    causes = [page for page in pages if page.place.startswith("causes/")]
    lines = ["# gpudoc", "", f"> {_WHAT} {len(CATALOGUE)} causes, each with its fix and source.", ""]
    for title, listed in (("Pages", [page for page in pages if page not in causes]), ("Causes", causes)):
        lines += [f"## {title}", "", *(f"- [{page.title}](pages/{page.place})" for page in listed), ""]
    return "\n".join(lines)
