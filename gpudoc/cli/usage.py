"""The command to type instead of one that gpudoc cannot run, or that does not do what the user meant."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern, escape
from gpudoc.shell import quote, quote_path

_HELP = "gpudoc --help"
_SCRIPT = "python train.py"
# words that people try, and the command for each
_ELSEWHERE = {
    **dict.fromkeys(("plan", "predict", "estimate", "memory"), 'gpudoc tune --model cfg.yaml --target "RTX 3090"'),
    **dict.fromkeys(("explain", "why", "what", "cause"), "gpudoc doctor --explain ID"),
    **dict.fromkeys(("list", "causes"), "gpudoc doctor --list"),
    **dict.fromkeys(("init", "setup", "new", "create", "config"), f"gpudoc tune -- {_SCRIPT} (no config is needed)"),
    **dict.fromkeys(("watch", "attach", "top", "monitor", "profile", "trace"), "gpudoc doctor --pid PID"),
    **dict.fromkeys(("run", "launch", "exec", "start", "fit"), f"gpudoc train -- {_SCRIPT}"),
    **dict.fromkeys(("optimize", "optimise", "autotune", "batch", "loader"), f"gpudoc tune -- {_SCRIPT}"),
    **dict.fromkeys(("diagnose", "analyze", "analyse", "debug", "info", "status", "log", "env"), "gpudoc doctor"),
    **dict.fromkeys(("fleet", "cluster", "nodes", "scale", "scaling"), "gpudoc bench --help"),
    "serve": "gpudoc mcp",
    "version": "gpudoc --version",
}
# commands that remove things: offered only if the user surely meant them
_REMOVES = frozenset({"clean"})
_EXTRA = Pattern(r"unexpected extra arguments?(?:\(s\))? ?\((.{1,500})\)$")
# ways in which a script may read options that it does not name itself
_READS_ANY = Pattern(r"\b(?:hydra|fire|HfArgumentParser|LightningCLI|absl|parse_known_args|REMAINDER|jsonargparse)\b")
_MOST_SOURCE = 1 << 20


def meant_command(name: str, commands: Collection[str], words: Sequence[str] = ()) -> str:
    """The command to type instead of `gpudoc NAME WORDS` if NAME does not exist; the help if nothing is similar."""
    place = Path(name)
    if os.path.exists(name):  # noqa: PTH110 - a name may be too long to ask
        of_kind = {".py": "doctor -- python", ".yaml": "tune --model", ".yml": "tune --model"}
        return f"gpudoc {of_kind.get(place.suffix, 'doctor')} {quote_path(name)}"
    if name.lower() in _ELSEWHERE:
        meant = _ELSEWHERE[name.lower()]
        named = len(words) == 1 and not words[0].startswith("-")
        return meant.replace("--explain ID", f"--explain {quote(words[0])}") if named else meant
    near = get_close_matches(name.lower(), commands, n=3)
    sure = [one for one in near if one not in _REMOVES or _is_one_letter_off(name.lower(), one)]
    return f"gpudoc {sure[0]}" if sure else _HELP


def _is_one_letter_off(typed: str, name: str) -> bool:
    """Whether the two words differ in one letter that is added, missing or different."""
    short, long = sorted((typed, name), key=len)
    if len(long) - len(short) > 1:
        return False
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return short[same + (len(short) == len(long)) :] == long[same + 1 :]


def way_on(arguments: Sequence[str], message: str) -> str:
    """The command to type after wrong usage: the line that was meant if that is clear, else the help."""
    command = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if command == "tune" and message.startswith("Missing option '--model'"):
        return "gpudoc tune --model quickstart (built in, nothing to prepare), or --model cfg.yaml"
    extra = _EXTRA.search(message)
    script = next((word for word in arguments if word.endswith(".py")), "")
    words = extra[1] if extra is not None else script if message.startswith("No such option") else ""
    if words and command in ("tune", "train", "bench", "fix"):
        meant = _with_operand(command, arguments, words)
        if meant:
            return meant
    return f"gpudoc {command} --help" if command else _HELP


def _with_operand(command: str, arguments: Sequence[str], words: str) -> str:
    """The line with a script after `--`, or a config after `--model`; '' if the words are neither."""
    extra = words.split()
    if extra[0] not in arguments:
        return ""
    first = arguments.index(extra[0])
    # Typer takes options from everywhere; those after the script were most likely meant for the script
    before, behind = arguments[1:first], arguments[first:]
    own = " ".join(["gpudoc", "tune" if command == "bench" else command, *map(quote, before)])
    script = next((word for word in extra if word.endswith((".py", ".sh"))), "")
    if script:
        starts = [] if extra[0] != script else ["python" if script.endswith(".py") else "sh"]
        return " ".join([own, "--", *starts, *map(quote, behind)])
    if command in ("tune", "train") and (extra[0].endswith((".yaml", ".yml")) or extra[0] in ("quickstart", "images")):
        return " ".join([own, "--model", *map(quote, behind)])
    return ""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Options of gpudoc's command that stand after `--`, where the script gets them, and the line that was meant."""

    options: tuple[str, ...]
    script: str
    meant: str

    @property
    def said(self) -> str:
        """A sentence that says where the options go."""
        one = len(self.options) == 1
        named = " and ".join(self.options)
        return f"{named} {'goes' if one else 'go'} to {self.script}, which does not mention {'it' if one else 'them'}"

    @property
    def hint(self) -> str:
        """The place where the options belong, as a line to type."""
        return f"put gpudoc's options before --: {self.meant}"


def misplaced_options(
    own: Sequence[str], watched: Sequence[str], options_of: Callable[[str], Mapping[str, bool]]
) -> Misplaced | None:
    """The options after the script in `watched` that belong to gpudoc's command and that the script never mentions.

    `options_of` gives the options of a command, each with whether a value follows it. None if there is no such
    option, or no Python script whose text can be read.
    """
    place = next((i for i, word in enumerate(watched) if word.endswith(".py")), None)
    if place is None or not own or not any(word.startswith("--") for word in watched[place:]):
        return None
    text = _source(Path(watched[place]))
    if not text or _READS_ANY.search(text):
        return None
    takes_value = options_of(own[0])
    kept, moved, names = list(watched[: place + 1]), [], []
    words = iter(watched[place + 1 :])
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in takes_value or name == "--help" or _names(text, name):
            kept.append(word)
            continue
        value = [] if equals or not takes_value[name] else [*filter(None, [next(words, "")])]
        names.append(name)
        moved += [word, *value]
    if not moved:
        return None
    line = " ".join(["gpudoc", *map(quote, [*own, *moved]), "--", *map(quote, kept)])
    return Misplaced(tuple(names), watched[place], line)


def _names(text: str, option: str) -> bool:
    """Whether the script reads it: as an option, a key, a field or a parameter; a word in a comment does not count."""
    bare = option.lstrip("-")
    name = escape(bare.replace("-", "_"))
    return Pattern(rf"--{escape(bare)}\b|(['\"]){escape(bare)}\1|\b{name}\s*[:=]|\.{name}\b").search(text) is not None


def _source(path: Path) -> str:
    """The script's text; '' if it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_SOURCE:
            return ""
        return path.read_text("utf-8", "replace")
    except (OSError, ValueError):
        return ""
