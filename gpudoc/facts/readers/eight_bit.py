"""Guesses which encoding from before UTF-8 a text has: no such text names its encoding."""

from __future__ import annotations

import codecs

from gpudoc.patterns import Pattern

_WORDS_BEYOND_ASCII = Pattern(r"[\x80-\xff]{3,}")
_SMALL_CYRILLIC = Pattern(r"[\u0430-\u044f\u0451]")
_CYRILLIC_ENCODINGS = ("cp1251", "koi8-r", "cp866")


def encoding_of(head: bytes) -> str:
    """The encoding of a text that is not UTF-8, from its beginning: a Chinese or Russian one, else Windows' own.

    Most Russian letters are lower case, and most Chinese characters are in the first part of their table; in a wrong
    encoding, they become capitals, signs or rare characters. Other languages have only single letters beyond ASCII.
    """
    words = _WORDS_BEYOND_ASCII.findall(head.decode("latin-1"))
    beyond = sum(map(len, words))
    if 2 * beyond < len(head) - sum(byte < 0x80 for byte in head):
        return "cp1252"
    small = {name: len(_SMALL_CYRILLIC.findall(head.decode(name, errors="replace"))) for name in _CYRILLIC_ENCODINGS}
    likeliest = max(small, key=lambda name: small[name])
    if small[likeliest] > 0.7 * beyond:
        return likeliest
    pairs = [word[place] for word in words for place in range(0, len(word) - 1, 2)]
    known = sum("\xa1" <= first <= "\xa3" or "\xb0" <= first <= "\xd7" for first in pairs)
    # a text that uses only the part of the table below this is Korean
    late = sum("\xc9" <= first <= "\xd7" for first in pairs)
    return "gb18030" if known > 0.8 * len(pairs) and late > 0.1 * len(pairs) and _is_chinese(head) else "cp1252"


def _is_chinese(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("gb18030")("strict").decode(head)
    except UnicodeDecodeError:
        return False
    return True
