from __future__ import annotations

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpudoc import patterns
from gpudoc.facts.readers.words import Words, Written
from gpudoc.patterns import Linear, Pattern, deadline, to_ascii


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


# the two readings of "aa" double the work with every letter
ENDLESS = r"(?:a|aa)+$"


def test_a_search_that_takes_too_long_is_given_up_and_named():
    text = "a" * 200 + "b"
    with deadline() as limit:
        assert Pattern(ENDLESS).search(text) is None
        assert Pattern(ENDLESS + " ").match(text) is None
        assert Pattern("x?" + ENDLESS).fullmatch(text) is None
        assert list(Pattern("y?" + ENDLESS).finditer(text)) == []
        assert Pattern("z?" + ENDLESS).findall(text) == []
        assert Pattern("a+b").search(text)
    assert [source[:2] for source in limit.given_up] == ["(?", "(?", "x?", "y?", "z?"]
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_replaces_text_is_never_given_up(monkeypatch):
    monkeypatch.setattr(patterns, "SEARCH_S", 0.0)
    monkeypatch.setattr(patterns, "_TICK_S", 0.001)
    with deadline() as limit:
        assert Pattern(ENDLESS).sub("x", "a" * 27 + "b") == "a" * 27 + "b"
    assert not limit.given_up


def test_a_text_that_had_its_time_is_searched_no_more_in_any_thread(monkeypatch):
    monkeypatch.setattr(patterns, "TEXT_S", 0.0)

    def search():
        with deadline() as limit:
            return Words("lost of it").search(Written("lost of it")), list(limit.given_up)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(search).result() == (None, ["lost of it"])
    assert search() == (None, ["lost of it"])
    assert Words("lost of it").search(Written("lost of it"))


def test_the_timer_of_a_program_that_calls_the_library_is_left_alone():
    ticks = []
    before = signal.signal(signal.SIGVTALRM, lambda *_: ticks.append(1))
    try:
        with deadline():
            signal.raise_signal(signal.SIGVTALRM)
            assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
        assert ticks
    finally:
        signal.signal(signal.SIGVTALRM, before)


def test_what_is_linear_finds_what_the_other_engine_finds_in_every_script():
    # small letters, as texts are searched
    every = "".join(map(chr, range(sys.maxunicode + 1))).replace("\u0130", "i").lower()
    seen = to_ascii(every)
    assert len(seen) == len(every)
    for source in (r"\w+", r"\s+", r"\W", r"\d", r"\bx\w", "[a-z]+", r"[^\w.]{3}"):
        plain = [match.regs for match in re.compile(source).finditer(every)]
        # a number of any script is read as what it counts
        assert list(Linear(source).finditer(seen)) == plain, source


def test_what_is_linear_reads_groups_and_goes_on_behind_what_is_empty():
    found = Linear(r"(?sm)^(?P<key>\w+)(?:=(\w+))?$")
    assert list(found.finditer(b"a=b\nc")) == [((0, 3), (0, 1), (2, 3)), ((4, 5), (4, 5), (-1, -1))]
    assert dict(found.names) == {"key": 1}
    assert [spans[0] for spans in Linear("x*").finditer(b"axx")] == [(0, 0), (1, 3), (3, 3)]


@pytest.mark.parametrize("source", ["(?=a)", r"(a)\1", "(?<!a)b", "\u4e00", r"\u4e00", "("])
def test_what_only_the_other_engine_knows_is_refused(source):
    with pytest.raises(ValueError, match=r"."):
        Linear(source)


def test_importing_what_judges_compiles_hardly_any_pattern_and_takes_no_words_apart():
    code = (
        "import re, sys\n"
        "import gpudoc.facts.collection\n"
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
