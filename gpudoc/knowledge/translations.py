"""Doctor's texts in Chinese or Russian: the rows in languages/, read only when a text needs them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from gpudoc.knowledge.cause_rows import cut_rows, own_rows, parse_row
from gpudoc.knowledge.tables import FOLDER, read_texts
from gpudoc.own_files import read_own_file
from gpudoc.patterns import Match, Pattern, escape

# each has its rows in <language>_causes.yaml
LANGUAGES = ("zh", "ru")

_FOLDER = FOLDER / "languages"
_WORD = Pattern(r"\{( ?)(\w+)\}")
# the keys of a step that hold prose; all else in it is a command or a condition
_PROSE = ("say", "what", "when", "why")
# the values that a word may have if two words stand next to each other
_CLOSED = {
    "in_windows": "in Windows",
    "machine": "the host|the machine",
    "when": r"(?:if|to|instead of) [a-z ]+?",
    "where": "in Windows|on the host",
}
# words that are sentences themselves: the sentence around one is known only if the word is
_KNOWN = {*_PROSE, "title"}
_DETAIL = "{said} ({detail})"


@functools.cache
def translation(language: str) -> Translation:
    """The translations into one of LANGUAGES."""
    return Translation(language)


class Translation:
    """The sentences of one language: those of the causes that have a row, and all others."""

    def __init__(self, language: str) -> None:
        table = cast(Mapping[str, Mapping[str, str]], read_texts(read_own_file(_FOLDER / "sentences.yaml")))
        self.sentences: Mapping[str, str] = {english: said[language] for english, said in table.items()}
        self._rows = cut_rows(read_own_file(_FOLDER / f"{language}_causes.yaml"))
        self._templates = [(one, said) for one, said in self.sentences.items() if _WORD.search(one)]
        self._causes: dict[str, Mapping[str, str]] = {}

    @property
    def causes(self) -> tuple[str, ...]:
        """The ids of the causes that have a row."""
        return tuple(self._rows)

    @functools.cached_property
    def titles(self) -> Mapping[str, str]:
        """The title of each cause that has a row, by its English one."""
        return dict(next(iter(self.of_cause(cause_id).items())) for cause_id in self._rows)

    def say(self, sentence: str, *values: object) -> str:
        """A sentence of the screen with its values in place of its braces."""
        return self.sentences.get(sentence, sentence).format(*values)

    def translate(self, sentence: str, cause_id: str = "") -> str:
        """The translation of an English sentence, of this cause or of all, with its words filled in; else itself."""
        return self._known(sentence, self.of_cause(cause_id)) or sentence

    def title(self, title: str, cause_id: str) -> str:
        """The title of a finding; an unknown one, with its own figures, stays English behind the cause's title."""
        own = self.of_cause(cause_id)
        known = self._known(title, own)
        if known is not None or not own:
            return known or title
        general = next(iter(own.values()))
        return _filled(self.sentences[_DETAIL], {"said": general, "detail": title})

    def of_cause(self, cause_id: str) -> Mapping[str, str]:
        """Each English text of a cause's row and its translation, the title first; empty for a cause without a row."""
        if cause_id not in self._rows:
            return {}
        if cause_id not in self._causes:
            area = next(rows for rows in own_rows().values() if cause_id in rows)
            pairs = zip(texts_of(parse_row(area[cause_id])), texts_of(parse_row(self._rows[cause_id])), strict=True)
            self._causes[cause_id] = dict(pairs)
        return self._causes[cause_id]

    def _known(self, sentence: str, own: Mapping[str, str]) -> str | None:
        exact = own.get(sentence) or self.sentences.get(sentence)
        if exact is not None:
            return exact
        for template, said in (*((one, own[one]) for one in own if _WORD.search(one)), *self._templates):
            match = _expression(template).fullmatch(sentence)
            words = None if match is None or template == _DETAIL else self._words(match, own)
            if words is not None:
                return _filled(said, words)
        return None

    def _words(self, match: Match[str], own: Mapping[str, str]) -> Mapping[str, str] | None:
        words: dict[str, str] = {}
        for name, value in match.groupdict().items():
            known = self._known(value, own) if value else ""
            if known is None and name in _KNOWN:
                return None
            words[name] = value if known is None else known
        return words


def texts_of(row: Mapping[str, object]) -> Iterator[str]:
    """The texts of a cause's row in order, without its commands: title, reason, and what each of its steps says."""
    yield str(row["title"])
    yield str(row["why"])
    fix = row["fix"]
    for steps in fix.values() if isinstance(fix, dict) else (fix,):
        for step in cast(Sequence[object], steps):
            if isinstance(step, Mapping):
                yield from (str(text) for key, text in step.items() if key in _PROSE)
            else:
                yield str(step)


@functools.cache
def _expression(template: str) -> Pattern:
    """The pattern that matches the template with any words filled in."""
    parts, end = [], 0
    for word in _WORD.finditer(template):
        blank, name = word.groups()
        group = f"(?P<{name}>{_CLOSED.get(name, '.+?')})"
        parts += [escape(template[end : word.start()]), f"(?: {group})?" if blank else group]
        end = word.end()
    return Pattern("".join((*parts, escape(template[end:]))))


def _filled(said: str, words: Mapping[str, str]) -> str:
    def word(match: Match[str]) -> str:
        value = words.get(match[2], "")
        return match[1] + value if value else ""

    return _WORD.sub(word, said)
