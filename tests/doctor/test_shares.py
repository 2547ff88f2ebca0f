import pytest

from gpudoc.doctor.causes.sign import words
from gpudoc.doctor.shares import measured
from gpudoc.facts.readers.model import CleanText, Line

SHARE = words(r"(?P<share>\d+\.\d+) % in (?:loader|reader)")
STEP = words(r"step (?P<whole>\d+\.\d+) data (?P<part>\d+\.\d+)")
UNITS = words(r"step (?P<whole>[\d.]+ ?(?:ms|s|it/s)?) ?data (?P<part>[\d.]+ ?m?s)")
SECONDS = words(r"step (?P<whole>[\d.]+ s) data (?P<part>[\d.]+ s)")
PARTS = words(r"fwd (?P<whole_fwd>\d+\.\d+) bwd (?P<whole_bwd>\d+\.\d+) sync (?P<part>\d+\.\d+)")


def ask(said, lines, least=30.0):
    text = CleanText(tuple(Line(number, line) for number, line in enumerate(said.split("\n"), 1)))
    found = measured(text, lines, "profile")
    return None if found is None or found.percent < least else (found.seen.value, found.seen.origin)


@pytest.mark.parametrize(
    ("said", "lines", "answer"),
    [
        ("nothing", SHARE, None),
        # the largest share counts, and a number above all of a step is none
        ("12.0 % in loader\n61.0 % in loader\n40.0 % in reader", SHARE, ("61.0 % in loader", "line 2")),
        ("29.0 % in loader", SHARE, None),
        ("250.0 % in loader\n31.0 % in reader", SHARE, ("31.0 % in reader", "line 2")),
        # steps are summed without the first of several
        ("step 9.0 data 8.0\nstep 1.0 data 0.5\nstep 1.0 data 0.7", STEP, ("60 % of the time in 2 logged steps", "line 3")),
        ("step 9.0 data 8.0\nstep 1.0 data 0.0\nstep 1.0 data 0.0", STEP, None),
        ("step 1.0 data 0.5", STEP, ("50 % of the time in 1 logged step", "line 1")),
        # a part that is longer than its step goes on next to it, or is in milliseconds
        ("step 1.0 data 3.0", STEP, ("3 s next to steps of 1 s in 1 logged step", "line 1")),
        ("step 3.2 data 2900.0", STEP, ("91 % of the time in 1 logged step", "line 1")),
        ("step 3.2 data 60.0", STEP, ("60 s next to steps of 3.2 s in 1 logged step", "line 1")),
        ("step 0.2 s data 2900.0 s", SECONDS, ("2.9e+03 s next to steps of 0.2 s in 1 logged step", "line 1")),
        ("step 0.0 data 0.0", STEP, None),
        # a printed unit counts, a time without one has its neighbour's, and a rate is the time of one
        ("step 3.4s data 3400ms", UNITS, ("100 % of the time in 1 logged step", "line 1")),
        ("step 3.4 s data 12 ms", UNITS, None),
        ("step 400 data 300ms", UNITS, ("75 % of the time in 1 logged step", "line 1")),
        ("step 2it/s data 0.25s", UNITS, ("50 % of the time in 1 logged step", "line 1")),
        ("fwd 1.0 bwd 3.0 sync 2.0", PARTS, ("50 % of the time in 1 logged step", "line 1")),
    ],
)  # fmt: skip
def test_a_share_is_read_from_a_line_or_summed_over_steps(said, lines, answer):
    assert ask(said, lines) == answer
