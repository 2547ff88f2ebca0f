"""Texts that were made to keep doctor busy: no search is given up on them, and where none can be interrupted all the
same none is begun that could not be limited."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpudoc import patterns
from gpudoc.doctor.examine import examine_text
from gpudoc.facts.readers import words
from gpudoc.facts.readers.words import Words, Written
from gpudoc.patterns import DOTALL, MULTILINE, PIECE, Linear, NoLinearEngineError, Pattern, Unproved, deadline, growth
from tests.pumped import pumped
from tests.test_pattern_growth import MOST, work

# as they were found: 452 bytes, 1.5 KB and 2 KB that took for ever, hours and seconds
ARCH = "Torch CUDA arch list: ['sm_80', {}\nPyTorch version: 2.1.0\n"
AVAILABLE = "PyTorch version: 2.1.0\ntorch.cuda.is_available(){}x\n"
SOURCE = "RuntimeError: CUDA error: invalid device function {}x\n"


def arch(times: int) -> str:
    return ARCH.format("'sm_9_0'," * times)


def available(times: int) -> str:
    return AVAILABLE.format(" " * 35 * times)


def source(times: int) -> str:
    return SOURCE.format("csrc/" * 9 * times)


@pytest.fixture
def without_re2(monkeypatch):
    """As where RE2 is not installed."""

    class Missing(Linear):
        def __init__(self, source):
            raise NoLinearEngineError(source)

    monkeypatch.setattr(words, "Linear", Missing)
    words._compile.cache_clear()
    yield
    words._compile.cache_clear()


def in_a_thread(call):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def examined(text: str):
    return examine_text([("a.log", text.encode())])


@pytest.mark.parametrize("made", [arch, available, source])
def test_nothing_is_given_up_on_a_log_that_was_made_to_hang_doctor_and_its_work_grows_with_its_length(made):
    examined(made(1))
    assert not [one for one in examined(made(40)).skipped if one.id == "signatures"]
    # a long line is cut, so of several lines
    short, long = ("".join(made(40) for _ in range(times)) for times in (4, 32))
    times = [work(examined, text, 3) for text in (short, long)]
    assert math.log(times[1] / times[0]) / math.log(32 / 4) < MOST
    report = examined(long)
    assert not [one for one in report.skipped if one.id == "signatures"]


# twice as many letters are twice as many ways to read it
ENDLESS = r"(?:a|aa)+z"


def test_in_a_thread_without_re2_what_could_take_for_ever_is_not_begun_and_the_answer_says_so(without_re2):
    text = Written("a" * 30 + "b. out of memory")

    def search():
        with deadline() as limit:
            assert not limit.is_interrupting
            found = Words(ENDLESS).search(text), list(Words(ENDLESS).finditer(text))
            return found, Words("out of memory").search(text), list(limit.given_up)

    nothing, found, given_up = in_a_thread(search)
    assert nothing == (None, [])
    assert found is not None
    assert given_up == [ENDLESS]
    assert words._compile(ENDLESS).num_searches == 0


def test_in_the_main_thread_all_are_searched_for_and_interrupted_as_ever(without_re2):
    with deadline() as limit:
        assert limit.is_interrupting
        assert Words(ENDLESS).search(Written("aaz")) is not None
        assert Words(ENDLESS).search(Written("a" * 200 + "b")) is None
    assert list(limit.given_up) == [words._compile(ENDLESS).source]


def test_a_text_in_a_thread_has_its_time_and_no_more(without_re2, monkeypatch):
    monkeypatch.setattr(patterns, "TEXT_S", 0.0)

    def search():
        with deadline() as limit:
            return Unproved("x").search("x"), list(limit.given_up)

    assert in_a_thread(search) == (None, ["x"])


@pytest.mark.parametrize("place", [0, PIECE - 7, PIECE - 1, PIECE, 2 * PIECE - 5, 3 * PIECE - 3])
def test_in_pieces_the_same_is_found_as_in_one(place):
    text = f"{'-' * place}out of memory 12 out of memory 345{'-' * (4 * PIECE)}out of memory 6"
    source = r"\bout\s+of\s+memory\s+(\d+)|^-|-$"

    def search():
        with deadline():
            one = Unproved(source, DOTALL | MULTILINE)
            return [match.span() for match in one.finditer(text)], one.search(text), one.search(text, place + 1)

    spans, first, later = in_a_thread(search)
    plain = Pattern(source, DOTALL | MULTILINE)
    assert spans == [match.span() for match in plain.finditer(text)]
    assert (first.span(), later.span()) == (plain.search(text).span(), plain.search(text, place + 1).span())


TEXTS = sorted(Path(__file__).with_name("fuzz").glob("texts/*.log"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_in_a_thread_without_re2_the_first_answer_is_the_same_or_it_says_that_not_all_was_looked_for(without_re2, path):
    text = path.read_text("utf-8")
    usual, there = examined(text), in_a_thread(lambda: examined(text))
    is_same = [one.id for one in there.findings[:1]] == [one.id for one in usual.findings[:1]]
    assert is_same or [one for one in there.skipped if one.id == "signatures"]


def test_in_a_thread_without_re2_an_answer_says_what_was_not_looked_for(without_re2):
    text = "".join(path.read_text("utf-8") for path in TEXTS)
    assert not [one for one in examined(text).skipped if one.id == "signatures"]
    (skipped,) = [one for one in in_a_thread(lambda: examined(text)).skipped if one.id == "signatures"]
    assert "could not be limited" in skipped.because


@pytest.mark.parametrize("made", [arch, available, source])
def test_in_a_thread_without_re2_such_a_log_is_read_to_its_end(without_re2, made):
    assert in_a_thread(lambda: examined("".join(made(40) for _ in range(4)))).verdict


@pytest.mark.parametrize(
    ("expression", "is_bounded"),
    [
        (r"out\s+of\s+memory", True),
        (r"tried to allocate \d+ gib", True),
        (r"from.{0,40}to", True),
        (r"(?:a|aa)+z", False),
        (r"(?:\w+\s+)*z", False),
        (r"\w*loss\w*x\w*", False),
        (r"(?:a+){2,5}", False),
        (r"(a)\1", False),
    ],
)
def test_what_may_keep_an_engine_busy_with_one_piece_is_known_by_its_parts(expression, is_bounded):
    assert (growth(expression) <= patterns._MOST_GROWTH) is is_bounded


def test_what_counts_as_bounded_is_so_on_texts_made_to_keep_it_busy():
    from tests.test_pattern_growth import of_messages

    sources = sorted(one.source.removeprefix("(?sm)") for one in of_messages())
    bounded = [one for one in sources if growth(one) <= patterns._MOST_GROWTH]
    assert len(bounded) > 0.8 * len(sources)
    for expression in random.Random(7).sample(bounded, 60):
        search = Pattern(expression, DOTALL | MULTILINE).search
        with deadline() as limit:
            for text in pumped(expression, DOTALL | MULTILINE, 2 * PIECE):
                search(text.replace("  ", " x"))
        assert not limit.given_up, expression
