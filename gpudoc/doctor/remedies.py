"""The steps of a remedy: rows of a cause, of an Xid and of knowledge/steps.yaml, filled in with the setting's words.

Advice in the error itself ('... by setting NCCL_NVLS_ENABLE=0') is passed on if it makes sense alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from gpudoc.doctor.model import Advise, Finding, Remedy, Setting
from gpudoc.doctor.setting import WORDS, called, driver_at, selector
from gpudoc.facts.model import Absent, Gpu, GpuProcess
from gpudoc.facts.readers.model import CleanText
from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import read_list, read_table
from gpudoc.patterns import Match, Pattern
from gpudoc.shell import is_plain

_WORD = Pattern(r"\{( ?)(\w+)\}")
_LIST = "--query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"
# the recovery that an Xid 154 asks for, by a word in it, and by NVML_GPU_RECOVERY_ACTION_*; a reset if neither fits
_ASKED_IN_WORDS = {"reboot": "reboot", "imex": "recover_imex", "p2p": "recover_p2p"}
_ASKED_BY_NUMBER = {2: "reboot", 3: "recover_p2p", 5: "recover_imex", 7: "reboot"}


def do(say: str, run: str = "", *, disruptive: bool = False) -> Remedy:
    """One step: prose, the command, and whether it ends running work; it needs root if the command has sudo."""
    return Remedy(say=say, run=run, needs_root="sudo " in run, disruptive=disruptive)


def advise(name: str, **words: str) -> Advise:
    """The steps that the rows define under this name, with `words` filled into their text."""
    return lambda setting: take_steps(({"advice": name, **words},), setting)


def advise_recovery(asked: str) -> Advise:
    """Steps for the recovery that an Xid 154 names: 'GPU Reset Required', 'Node Reboot Required', 'Drain P2P'..."""
    return advise(next((steps for word, steps in _ASKED_IN_WORDS.items() if word in asked.lower()), "reset"))


def take_steps(steps: Sequence[object], setting: Setting, given: Mapping[str, str] | None = None) -> tuple[Remedy, ...]:
    """The steps of a row that fit the setting, with its words and those `given` by the calling step."""
    return tuple(remedy for step in steps for remedy in _take(step, setting, given or {}))


def _take(step: object, setting: Setting, given: Mapping[str, str]) -> tuple[Remedy, ...]:
    row = {"say": step} if isinstance(step, str) else dict(cast(Mapping[str, object], step))
    conditions = {word: row.pop(word) for word in row.keys() & WORDS.keys()}
    if not all(_is_so(wanted, WORDS[word](setting)) for word, wanted in conditions.items()):
        return ()
    name = row.pop("advice", None)
    if name in _COMPUTED:
        return _COMPUTED[name](setting, **row)
    if name is not None:
        return take_steps(read_table("steps.yaml", str(name)), setting, {"when": "", **cast(Mapping[str, str], row)})
    run = row.get("run", "")
    command = _command(str(run[WORDS["distribution"](setting)] if isinstance(run, dict) else run), setting, given)
    say = _fill(str(row["say"]), setting, given)
    if "ends" not in row:
        return (do(say, command, disruptive=row.get("disruptive") == "true"),)
    last = do(say, "" if driver_at(setting) == "windows" else command, disruptive=True)
    return (users(setting, everywhere=row["ends"] == "every"), *advise("drained")(setting), last)


def _is_so(wanted: object, word: str) -> bool:
    """Whether the setting's word is one of the wanted; 'known' accepts any word, 'unknown' only an empty one."""
    accepted = [wanted] if isinstance(wanted, str) else cast(Sequence[object], wanted)
    return word in accepted or ("known" if word else "unknown") in accepted


def _command(text: str, setting: Setting, given: Mapping[str, str]) -> str:
    """A command with its `{words}`; a word that is not safe in a shell appears as its name, for the user to fill in."""

    def word(match: Match[str]) -> str:
        blank, name = match.groups()
        if name in given or name not in WORDS:
            return _fill(match[0], setting, given)
        said = WORDS[name](setting)
        return blank + (said if is_plain(said) else name.upper()) if said else ""

    return _WORD.sub(word, text)


def _fill(text: str, setting: Setting, given: Mapping[str, str]) -> str:
    """The text with its `{words}`; other braces, such as the shell's, stay."""

    def word(match: Match[str]) -> str:
        blank, name = match.groups()
        if name not in given and name not in WORDS:
            return match[0]
        said = given[name] if name in given else WORDS[name](setting)
        return blank + said if said else ""

    return _WORD.sub(word, text)


def users(setting: Setting, *, everywhere: bool = False) -> Remedy:
    """The step to find and end programs on the finding's cards (any GPU if `everywhere`), by name on a live machine."""
    cards = () if everywhere else setting.cards
    which = "the GPUs" if everywhere else called(cards)
    indices = [card.index for card in cards] if cards else list(setting.holders)
    told = [setting.holders.get(index) for index in indices if not isinstance(index, Absent)]
    known = [process for processes in told for process in processes or ()]
    if known:
        say = f"End or move {_these(known)} on {which} first, and look for other programs."
    elif told and all(processes is not None for processes in told) and len(told) == len(indices):
        say = f"Check again right before the next step: no process is listed on {which} now."
    else:
        say = f"See which programs use {which}, and end or move them first."
    command = f"nvidia-smi{selector(cards)} {_LIST}"
    return do(say, command if driver_at(setting) == "windows" else f"{command}; sudo fuser -v /dev/nvidia*")


def _these(processes: list[GpuProcess]) -> str:
    # the user who started a process chose its name
    shown = ("a process" if isinstance(p.name, Absent) or not is_plain(p.name) else p.name for p in processes[:3])
    names = [f"{name} ({p.pid})" for name, p in zip(shown, processes, strict=False)]
    more = len(processes) - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more else ''}"


def _recover(setting: Setting) -> tuple[Remedy, ...]:
    """The recovery that the driver asks for, a reboot first, since a reset cannot replace it; else a reset."""
    actions = [card.facts.recovery_action for card in setting.cards if not isinstance(card.facts, Absent)]
    asked = [_ASKED_BY_NUMBER[action] for action in actions if isinstance(action, int) and action in _ASKED_BY_NUMBER]
    if "reboot" in asked:
        return advise("reboot")(setting)
    return (
        *advise(asked[0] if asked else "reset")(setting),
        *advise("reboot", when="if the reset is refused")(setting),
    )


def power_limits(setting: Setting, say: str, *, share: str) -> tuple[Remedy, ...]:
    """Each card's limit times `share` (1.0: as built), within its range; no figure if that is unknown."""
    runs = []
    for card in setting.cards:
        watts = _watts(card.facts, float(share))
        if not selector([card]) or watts is None:
            return (do(f"{say}: nvidia-smi -pl with its -i, within its Min and Max Power Limit."),)
        runs.append(f"sudo nvidia-smi{selector([card])} -pl {watts}")
    if not runs:
        return (do(f"{say}: see which GPU it is, and its Min and Max Power Limit.", "nvidia-smi -q -d POWER"),)
    return (do(f"{say}.", "\n".join(runs)),)


def _watts(gpu: object, share: float) -> int | None:
    if not isinstance(gpu, Gpu):
        return None
    own, least, most = gpu.power_limit_default_w, gpu.power_limit_min_w, gpu.power_limit_max_w
    if isinstance(own, Absent) or isinstance(least, Absent) or isinstance(most, Absent):
        return None
    return int(min(max(own * share, math.ceil(least)), most))


# advice that takes arithmetic or process names; the other words of a step are the arguments
_COMPUTED: Mapping[object, Callable[..., tuple[Remedy, ...]]] = {
    "power_limits": power_limits,
    "recover": _recover,
    "users": lambda setting: (users(setting),),
}


_NEAR = 4
_MOST = 3


@functools.cache
def _pattern(name: str) -> Pattern:
    """An expression of relayed.yaml, joined from its parts."""
    return Pattern("".join(read_list("relayed.yaml", name)))


def _says(name: str, text: str) -> bool:
    return _pattern(name).search(text) is not None


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting that an error advises, with the origins of the lines around it."""

    setting: str
    near: tuple[str, ...]


def advised_in(text: CleanText) -> tuple[Advice, ...]:
    """The settings that errors in the text advise, at most three, in order and each once."""
    found: dict[str, Advice] = {}
    for place, line in enumerate(text.lines):
        if "_" not in line.text or not _says("advice", line.text) or _says("told", line.text):
            continue
        around = text.lines[max(0, place - _NEAR + 1) : place + 1]
        if any(_says("failed", one.text) for one in around):
            for setting in _settings(line.text):
                found.setdefault(setting.split("=")[0], Advice(setting, tuple(one.origin for one in around)))
    return tuple(found.values())[:_MOST]


def _settings(line: str) -> Iterator[str]:
    for match in _pattern("pair").finditer(line):
        before = line[: match.start()]
        if not _says("advice", before[-160:]) or _says("condition", before) or _says("not_advised", before[-80:]):
            continue
        value = (match[2] or match[3]).rstrip(".,:")
        if value and not _says("shows", match[1]) and not _says("loads", match[1]):
            yield f"{match[1]}={value}"


def first_steps(finding: Finding, advices: Sequence[Advice]) -> tuple[Remedy, ...]:
    """The advice in the lines that support a finding, as steps to put before the finding's own."""
    origins = {seen.origin for seen in finding.evidence}
    mine = [advice.setting for advice in advices if origins.intersection(advice.near)]
    if not mine:
        return ()
    return (do(f"Set {' and '.join(mine)}, as the error itself advises.", f"export {' '.join(mine)}"),)
