"""The language of a person's question, by the letters of the person's sentences, not of paths and printed lines."""

from __future__ import annotations

from gpudoc.facts.readers.genre import FIRST_PERSON
from gpudoc.facts.readers.model import ENGLISH, CleanText, Language
from gpudoc.patterns import Pattern

# a question comes before or after the pasted text
_LINES_AT_EACH_END = 20
# a Chinese word has two characters on average
_CHARACTERS_PER_WORD = 2
_FEWEST_CHARACTERS, _FEWEST_LETTERS = 2, 5
# frames and code, exceptions, time stamps, levels, `name: value`, prompts, tables
_PRINTED = Pattern(
    r"^(?: {4}|\t|\s*(?:File [\"']|\$ |>>> |In \[|[|+\[{<]))|^(?:\w+\.)*\w+(?:Error|Exception|Warning)\b|"
    r"^\d{2,4}[-/:]\d\d[-/:]\d\d|^(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL)\b|^\s*[A-Za-z_]+: "
)
# quotations, paths and names of files, and typed options
_NO_PROSE = Pattern(
    r"\"[^\"]{0,200}\"|'[^']{0,200}'|`[^`]{0,200}`|(?:[A-Za-z]:|~)?(?:[\\/][^\s\\/,;:!?()\u3001\u3002\uff08\uff09\uff0c\uff1a\uff1b\uff1f]+){2,}|"
    r"[\w-]{1,80}\.(?:csv|ipynb|jpe?g|json|log|png|pth?|py|txt|ya?ml|zip)\b|--\w[\w-]*(?:[= ]\S+)?"
)
_HAN = Pattern(r"[\u4e00-\u9fff]")
# Japanese and Korean, and the letters of Ukrainian, Belarusian and Serbian that Russian does not have
_NOT_CHINESE = Pattern(r"[\u3040-\u30ff\uac00-\ud7af]")
_NOT_RUSSIAN = Pattern(r"(?i)[\u0454\u0456\u0457\u0491\u045e\u0458\u0459\u045a\u045b\u0452\u045f]")
_CYRILLIC = Pattern(r"(?i)[\u0430-\u044f\u0451]{2,}")
_LATIN = Pattern(r"[A-Za-z]{2,}")
_ASKS = Pattern(r"(?i)\?\s*$|\b(?:please|thanks|help|how|why)\b")


def language_of(text: CleanText) -> Language:
    """'zh' or 'ru' if most of a person's own text is Chinese or Russian, else 'en'."""
    ends = text.lines if len(text.lines) <= 2 * _LINES_AT_EACH_END else (
        *text.lines[:_LINES_AT_EACH_END], *text.lines[-_LINES_AT_EACH_END:]
    )  # fmt: skip
    prose = [_NO_PROSE.sub(" ", line.text) for line in ends if not _PRINTED.search(line.text)]
    written = "\n".join(prose)
    words = _CYRILLIC.findall(written)
    chinese, russian = len(_HAN.findall(written)), len(words)
    english = sum(len(_LATIN.findall(line)) for line in prose if _is_english(line))
    if chinese >= max(_FEWEST_CHARACTERS, _CHARACTERS_PER_WORD * max(english, russian)):
        return ENGLISH if _NOT_CHINESE.search(written) else "zh"
    if russian >= english and len("".join(words)) >= _FEWEST_LETTERS:
        return ENGLISH if _NOT_RUSSIAN.search(written) else "ru"
    return ENGLISH


def _is_english(line: str) -> bool:
    """Whether a person wrote this English sentence: a program's English line says nothing about the person who asks."""
    others = len(_HAN.findall(line)) // _CHARACTERS_PER_WORD + len(_CYRILLIC.findall(line))
    if others >= len(_LATIN.findall(line)):
        return False
    return FIRST_PERSON.search(line) is not None or _ASKS.search(line) is not None
