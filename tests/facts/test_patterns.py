from __future__ import annotations

import re
import subprocess
import sys

import pytest

from gpudoc.facts.patterns import Pattern


def test_a_pattern_does_what_a_compiled_one_does():
    lazy, plain = Pattern(r"(\d+) (gib|mib)", re.IGNORECASE), re.compile(r"(\d+) (gib|mib)", re.IGNORECASE)
    text = "12 GiB of 24 GiB"
    assert not lazy.is_compiled
    assert [m.span() for m in lazy.finditer(text)] == [m.span() for m in plain.finditer(text)]
    assert lazy.is_compiled
    assert lazy.search("x 3 MiB")[1] == "3"  # type: ignore[index]
    assert lazy.match("x 3 MiB") is None
    assert lazy.fullmatch("3 MiB, and more") is None
    assert lazy.sub("much", text) == "much of much"


def test_a_wrong_pattern_is_told_at_its_first_use():
    wrong = Pattern("(")
    with pytest.raises(re.error):
        wrong.search("x")


def test_importing_what_judges_compiles_hardly_any_pattern_and_takes_no_words_apart():
    code = (
        "import re, sys\n"
        "import gpudoc.facts.collect\n"
        "count = 0\n"
        "real = re.compile\n"
        "def spy(source, flags=0):\n"
        "    global count\n"
        "    count += sys._getframe(1).f_globals.get('__name__', '').startswith('gpudoc')\n"
        "    return real(source, flags)\n"
        "re.compile = spy\n"
        "import gpudoc.facts.readers.words as words\n"
        "words.ways_of = None\n"
        "import gpudoc.doctor.registry\n"
        "print(count)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10
