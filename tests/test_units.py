import pytest

from gpudoc.units import (
    GIB,
    MIB,
    format_bytes,
    format_count,
    format_figure,
    format_ranks,
    format_rate,
    format_seconds,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 * GIB), ("512 MiB", 512 * MIB), ("1.5g", 3 * GIB // 2), ("8GB", 8 * 10**9), ("4096", 4096)],
)
def test_sizes_are_binary_unless_written_decimal(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "8 apples", "-1GiB", "8GiB!", "1e9"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2 min", 120)])
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "m5", "-3s"])
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 * GIB, "20 GiB"), (141 * GIB, "141 GiB"), (-MIB, "-1 MiB")],
)
def test_bytes_have_three_digits(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4e-6, "4 µs"), (0.85, "850 ms"), (4.2, "4.2 s"), (185, "3 min 05 s"), (7805, "2 h 10 min")],
)
def test_seconds_as_people_say_them(seconds, text):
    assert format_seconds(seconds) == text


def test_one_is_one_and_more_have_an_s():
    assert [format_count(count, "loader worker") for count in (0, 1, 2, 2000)] == [
        "0 loader workers",
        "1 loader worker",
        "2 loader workers",
        "2,000 loader workers",
    ]


def test_a_rate_names_its_unit():
    assert format_rate(12345.6, "samples/s") == "12,346 samples/s"
    assert format_rate(0.5, "batches/s") == "0.5 batches/s"


def test_a_figure_that_is_null_in_a_document_is_not_finite():
    assert format_figure(0.12345, ".3g") == "0.123"
    assert format_figure(None, ".3g") == "that is not finite"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([3], "rank 3"),
        ([3, 2, 1, 9], "ranks 1 to 3 and 9"),
        ([], "no rank"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8 and 15 more"),
    ],
)
def test_ranks_as_ranges(ranks, said):
    assert format_ranks(ranks) == said
