"""Files that are nearly what they should be: drawn from a seed, so that a number names a case for ever."""

from __future__ import annotations

import random
import zlib

from tests.fuzz.entrances import ENTRANCES, Entrance, seeds_of
from tests.test_mutated_files import TOKENS

MOST_BYTES = 1 << 20
# what terminals obey, hide or turn round, as text of several encodings
_CONTROLS = (
    b"\x1b]0;OWNED\x07", b"\x1b[31m", b"\x1b]52;c;Y3VybA==\x07", b"\xc2\x9b31m", b"\xc2\x9d0;x\xc2\x9c", b"\x9b", b"\r",
    "\u202e".encode(), "\u2066".encode(), b"\x00", b"\x08\x08\x08", "\u2028".encode(), b"\xff\xfe", "\ufeff".encode(),
)  # fmt: skip
# of these many in a row make a careless expression slow
_PUMPED = (
    b" ",
    b"\t",
    b"a",
    b"_",
    b"sm_80', '",
    b"9",
    b".",
    b"/",
    b"\\",
    b"(",
    b"[",
    b"{",
    b'"',
    b"'",
    b"\n",
    b": ",
    b"csrc/",
)
_NAMES = ("x", "a b", "$(touch pwned)", "-n", "\x1b[31mred", "naïve", "x;touch pwned2", "a\nb", "…", "%s", "'q'", '"')


def entrance_of(number: int) -> Entrance:
    """Where the case of that number is handed over."""
    return ENTRANCES[number % len(ENTRANCES)]


def case(number: int) -> tuple[Entrance, bytes, str, str]:
    """The entrance, the content, the file's name and the mode of a case."""
    draw = random.Random(number)
    entrance = entrance_of(number)
    content = draw.choice(seeds_of(entrance.name))
    inside = entrance.name.startswith("packed") and draw.random() < 0.5
    if inside:
        content = zlib.decompress(content, wbits=31)
    for _ in range(draw.randint(1, 5)):
        content = _edit(draw, content, entrance)
    content = content[:MOST_BYTES]
    if inside:
        packer = zlib.compressobj(wbits=31)
        content = packer.compress(content) + packer.flush()
    return entrance, content, draw.choice(_NAMES) + entrance.ending, draw.choice(entrance.modes)


def _edit(draw: random.Random, content: bytes, entrance: Entrance) -> bytes:
    place = draw.randint(0, len(content))
    match draw.randint(0, 9):
        case 0:
            return content[:place]
        case 1:
            return (
                content[:place] + bytes(draw.randrange(256) for _ in range(draw.randint(1, 4))) + content[place + 1 :]
            )
        case 2:
            return content[:place] + draw.choice(TOKENS) + content[place:]
        case 3:
            return content[:place] + draw.choice(_CONTROLS) + content[place:]
        case 4:
            pumped = draw.choice(_PUMPED) * draw.choice((50, 500, 5_000, 100_000))
            return content[:place] + pumped[:MOST_BYTES] + content[place:]
        case 5:
            other = draw.choice(seeds_of(entrance.name))
            return content[:place] + other[draw.randint(0, len(other)) :]
        case 6:
            end = min(len(content), place + draw.randint(1, 60))
            return content[:end] + content[place:end] * draw.choice((1, 20, 2_000)) + content[end:]
        case 7:
            end = min(len(content), place + draw.randint(1, 200))
            return content[:place] + content[end:]
        case 8:
            return content * draw.choice((2, 30))
        case _:
            flipped = bytearray(content)
            for _ in range(draw.randint(1, 20)):
                if flipped:
                    flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
            return bytes(flipped)
