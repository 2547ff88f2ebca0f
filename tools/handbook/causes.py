"""A page per cause, from the catalogue, the signatures and the finders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import cast, get_args

import yaml

from gpudoc.doctor.causes import job, step_trace
from gpudoc.doctor.model import Cause, Place, Remedy, Setting
from gpudoc.doctor.registry import CATALOGUE, FINDERS
from gpudoc.knowledge.cause_rows import AREAS, area_of
from gpudoc.knowledge.signature_rows import CODE, FAMILIES, Signature, load_folder
from tools.handbook.page import Page, fenced, plain, sentence, table

_MOST_MESSAGES = 6
_MOST_NEIGHBOURS = 7
_PLACES: dict[Place, str] = {
    "host": "Linux",
    "docker": "Docker",
    "kubernetes": "Kubernetes",
    "slurm": "SLURM",
    "notebook": "Notebook",
    "colab": "Colab",
    "wsl": "WSL",
    "windows": "Windows",
    "macos": "macOS",
    "jetson": "Jetson",
}
assert set(_PLACES) == set(get_args(Place))
_DISTRIBUTIONS = {"Red Hat Enterprise Linux": "Red Hat and Fedora", "Arch Linux": "Arch"}
_AREA_TITLES = {
    "GPU": "the GPU itself",
    "driver": "the NVIDIA driver",
    "PyTorch": "PyTorch and its libraries",
    "container": "containers and WSL",
    "memory": "memory",
    "data": "loading data",
    "network": "several GPUs and nodes",
    "program": "your program and its machine",
    "code": "errors in your code",
    "scheduler": "schedulers of a cluster",
    "warnings": "messages that stop nothing",
    "fleet": "many GPUs compared with each other",
}

# how a cause is found that no finder of doctor looks for: by its name, by its area, or by measuring
_ELSEWHERE = {
    "machines_differ": "- Between machines: `gpudoc doctor node1.json node2.json`",
    "gpu_unusable": "- Before a command uses the GPU: `gpudoc bench`, `gpudoc tune`, `gpudoc train`",
    "fleet": "- In many GPUs: `gpudoc bench --across`",
    "measured": "- By measuring: `gpudoc bench`",
}


def cause_pages() -> list[Page]:
    """The index of all causes, then a page for each, by area."""
    ordered = sorted(CATALOGUE.values(), key=lambda cause: (AREAS.index(area_of(cause.id)), cause.id))
    return [_index(ordered), *(Page(place_of(cause.id), cause.title, _text(cause)) for cause in ordered)]


def place_of(cause_id: str) -> str:
    """Where the page of a cause stands in the site."""
    return f"causes/{cause_id}.md"


def area_title(area: str) -> str:
    """What an area of causes is about, in words."""
    return _AREA_TITLES[area]


@cache
def signatures_of() -> Mapping[str, Sequence[Signature]]:
    """The rows of knowledge/signatures by cause, the surest first, with their examples."""
    found: dict[str, list[Signature]] = defaultdict(list)
    folder = cast(Path, resources.files("gpudoc.knowledge") / "signatures")
    for row in load_folder(folder, examples=True, families=(*FAMILIES, CODE)):
        found[row.cause].append(row)
    return {cause: sorted(rows, key=lambda row: -row.confidence) for cause, rows in found.items()}


@cache
def other_messages() -> Mapping[str, str]:
    """What people see of causes that no single message shows."""
    text = Path(__file__).with_name("messages.yaml").read_text("utf-8")
    return cast(Mapping[str, str], yaml.safe_load(text))


def messages_of(cause_id: str) -> list[str]:
    """Texts that show the cause, as programs print them; none for one that only facts of a machine or a job show."""
    rows = signatures_of().get(cause_id, ())
    found = [row.examples[0].strip("\n") for row in rows[:_MOST_MESSAGES] if row.examples]
    if cause_id in other_messages():
        found.insert(0, other_messages()[cause_id].strip("\n"))
    return list(dict.fromkeys(found))


def neighbours_of(cause: Cause) -> list[tuple[Cause, str]]:
    """The causes that it may be mistaken for, and how they stand to it; the closest first."""
    found = {other.id: "is deeper" for other in CATALOGUE.values() if cause.id in other.explains}
    found |= dict.fromkeys(cause.explains, "follows from this one")
    near = sorted(
        (other for other in CATALOGUE.values() if other.id != cause.id), key=lambda o: (-_likeness(cause, o), o.id)
    )
    for other in near:
        if len(found) >= _MOST_NEIGHBOURS or not _likeness(cause, other):
            break
        found.setdefault(other.id, "has similar signs")
    return [(CATALOGUE[one], how) for one, how in found.items() if one in CATALOGUE]


def _likeness(one: Cause, other: Cause) -> float:
    """0 when two causes share no area; else how many words of their ids and meanings are the same."""
    if area_of(one.id) != area_of(other.id):
        return 0.0
    names = set(one.id.split("_")) & set(other.id.split("_"))
    words = [set(re.findall(r"[a-z]{4,}", cause.meaning.lower())) for cause in (one, other)]
    shared = len(words[0] & words[1]) / max(1, len(words[0] | words[1]))
    return len(names) + shared if names or shared > 0.1 else 0.0


def _text(cause: Cause) -> str:
    parts = [
        " ".join(plain(sentence(text)) for text in (cause.meaning, cause.why) if not _same(text, cause.title)),
        f"`gpudoc doctor` calls it `{cause.id}`, in the area *{_AREA_TITLES[area_of(cause.id)]}*.",
        "## The message\n\n" + _messages(cause),
        "## How gpudoc finds it\n\n" + _how(cause),
        "## What it is not\n\n" + _neighbours(cause),
        "## Fix\n\n" + _fix(cause),
        "## Sources\n\n" + "\n".join(f"- <{source}>" for source in _sources(cause)),
        "## In the terminal\n\n" + fenced(f"gpudoc doctor --explain {cause.id}", "sh"),
    ]
    return "\n\n".join(part.rstrip() for part in parts)


def _same(one: str, other: str) -> bool:
    letters = [re.sub(r"\W+|\b(?:the|a|an) ", "", text.lower()) for text in (one, other)]
    return letters[0] == letters[1]


def _messages(cause: Cause) -> str:
    found = messages_of(cause.id)
    if not found:
        return "No message shows this cause by itself. gpudoc finds it in what it reads, as said below."
    return "One of these, or one like it:\n\n" + "\n".join(fenced(text) for text in found)


def _how(cause: Cause) -> str:
    finders = [finder for finder in (*FINDERS, *job.FINDERS, *step_trace.FINDERS) if finder.id == cause.id]
    reads = {finder.reads for finder in finders}
    lines = []
    if messages_of(cause.id) or "text" in reads:
        lines.append("- In a log, traceback or report: `gpudoc doctor train.log`")
    if "machine" in reads:
        needs = sorted({need for finder in finders if finder.reads == "machine" for need in finder.needs})
        facts = f", from {', '.join(f'`{need}`' for need in needs)}" if needs else ""
        lines.append(f"- On this machine: `gpudoc doctor`{facts}")
    if "watch" in reads:
        lines.append("- In a running job: `gpudoc doctor --pid PID`")
    if "trace" in reads:
        lines.append("- In a profiler's trace: `gpudoc doctor trace.json`")
    if not finders and not lines:
        lines.append(_ELSEWHERE.get(cause.id) or _ELSEWHERE.get(area_of(cause.id), _ELSEWHERE["measured"]))
    rows = signatures_of().get(cause.id, ())
    kept = sorted({f"`{fact}` is `{value}`" for row in rows for fact, value in row.unless_fact.items()})
    if kept:
        lines.append(f"- Not when {' or '.join(kept)}: then the message has another cause.")
    return "\n".join(lines)


def _neighbours(cause: Cause) -> str:
    near = neighbours_of(cause)
    if not near:
        return "No other cause is easily mistaken for this one."
    rows = [(f"[{plain(other.title)}]({other.id}.md)", plain(sentence(other.meaning)), how) for other, how in near]
    related = any(how != "has similar signs" for _, how in near)
    said = "Where two are found together, the deeper one is named, and what follows from it stands under it.\n\n"
    return said * related + table(("cause", "what that is", "beside this one it"), rows)


def _fix(cause: Cause) -> str:
    groups: dict[tuple[Remedy, ...], list[str]] = {}
    for place, name in _PLACES.items():
        groups.setdefault(cause.fix(Setting(place=place)), []).append(name)
    for distribution, name in _DISTRIBUTIONS.items():
        steps = cause.fix(Setting(distribution=distribution))
        if steps not in groups:
            groups[steps] = [name]
    if len(groups) == 1:
        return _steps(next(iter(groups)))
    (first, names), *others = groups.items()
    here = (
        "Debian and Ubuntu" if {*_DISTRIBUTIONS.values()} & {name for _, group in others for name in group} else "Linux"
    )
    elsewhere = " and elsewhere" if {*names} - {"Linux", "macOS", "Jetson"} else ""
    parts = [f"### {here}{elsewhere}\n\n{_steps(first)}"]
    parts += [f"### {_list(group)}\n\n{_steps(steps)}" for steps, group in others]
    return "\n".join(parts)


def _steps(steps: Sequence[Remedy]) -> str:
    lines = []
    for number, step in enumerate(steps, 1):
        mark = " *(ends work that is going on)*" if step.disruptive else ""
        root = " *(needs root)*" if step.needs_root else ""
        lines.append(f"{number}. {plain(step.say)}{mark}{root}\n")
        if step.run:
            block = fenced(step.run, "sh")
            lines.append("\n".join(f"    {line}" for line in block.splitlines()) + "\n")
    return "\n".join(lines)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _sources(cause: Cause) -> list[str]:
    rows = signatures_of().get(cause.id, ())
    return [one for one in dict.fromkeys((*cause.sources, *(row.source for row in rows))) if one.startswith("http")]


def _index(causes: Sequence[Cause]) -> Page:
    said = "Each page gives the message, what it means, what it is easily mistaken for, and the fix by platform.\n"
    said += (
        "Where a fix installs something, the page says pip; the command itself says uv, conda or `%pip` when it sees\n"
    )
    said += "one of these."
    parts = [
        f"gpudoc knows {len(causes)} causes. Paste what you see, and it names the one that fits:",
        fenced("gpudoc doctor train.log\nxclip -o | gpudoc doctor -", "sh"),
        said,
    ]
    for area in AREAS:
        rows = [
            (f"[{plain(cause.title)}]({cause.id}.md)", f"`{cause.id}`") for cause in causes if area_of(cause.id) == area
        ]
        parts.append(f"## {_AREA_TITLES[area][0].upper()}{_AREA_TITLES[area][1:]}\n\n{table(('cause', 'name'), rows)}")
    return Page("causes/index.md", "Causes", "\n\n".join(part.rstrip() for part in parts))
