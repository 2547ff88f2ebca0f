import re
import xml.etree.ElementTree as ET

from gpudoc.render.chart import NARROW, WIDE, Axis, Part, Series, line_chart, share_bar
from gpudoc.units import format_bytes

SVG = "{http://www.w3.org/2000/svg}"


def drawings(markup):
    """The drawing for a screen and the one for a phone."""
    wide, narrow = ET.fromstring(f"<div>{markup}</div>")
    assert (wide.get("class"), narrow.get("class")) == ("wide", "narrow")
    return wide, narrow


def circles(markup):
    return [(float(c.get("cx")), float(c.get("cy"))) for c in drawings(markup)[0].iter(f"{SVG}circle")]


def texts(drawing, anchor):
    return [t.text for t in drawing.iter(f"{SVG}text") if t.get("text-anchor") == anchor]


def test_points_stand_where_their_values_say():
    line = Series(name="copy", points=((1, 10), (10, 20), (100, 40)))
    places = circles(line_chart("t", [line], Axis(label="size", log=True), Axis(label="GB/s")))
    (x1, y1), (x2, y2), (x3, y3) = places
    assert abs((x2 - x1) - (x3 - x2)) < 0.2, "decades are equally wide"
    assert abs((y1 - y2) * 2 - (y2 - y3)) < 0.3, "the y axis is linear and grows upward"
    assert all(0 <= x <= WIDE.width and 0 <= y <= WIDE.height + 50 for x, y in places)


def test_what_was_measured_is_solid_and_a_limit_is_dashed():
    roof = Series(name="roof", points=((1, 1), (2, 2)), style="roof")
    points = Series(name="p", points=((1, 1),), style="points")
    curve = Series(name="c", points=((1, 1), (2, 2), (3, 1)), style="curve")
    markup = line_chart("t", [roof, points, curve], Axis(label="x"), Axis(label="y"))
    wide, _ = drawings(markup)
    lines = {line.get("stroke"): line.get("stroke-dasharray") for line in wide.iter(f"{SVG}polyline")}
    assert lines == {"var(--s0)": "6 5", "var(--s2)": None}
    assert len(circles(markup)) == 2, "the point, and its mark in the legend"


def test_one_series_needs_no_legend_and_several_fit_the_width_of_a_phone():
    one = line_chart("t", [Series(name="speed of it", points=((1, 1), (2, 2)))], Axis(label="x"), Axis(label="y"))
    assert not [t for t in ET.fromstring(f"<div>{one}</div>").iter(f"{SVG}text") if t.text == "speed of it"]
    many = [Series(name=f"a long name of number {n}", points=((1, n), (2, n))) for n in range(5)]
    _, narrow = drawings(line_chart("t", many, Axis(label="x"), Axis(label="y")))
    named = [t for t in narrow.iter(f"{SVG}text") if t.text.startswith("a long name")]
    assert len({t.get("y") for t in named}) == 5
    assert narrow.get("viewBox").split()[2] == str(NARROW.width)


def test_an_axis_may_span_its_values_instead_of_beginning_at_zero():
    series = [Series(name="loss", points=((1, 2.0), (2, 2.4)), style="curve")]
    wide, _ = drawings(line_chart("t", series, Axis(label="x"), Axis(label="y", from_zero=False)))
    assert texts(wide, "end") == ["2", "2.1", "2.2", "2.3", "2.4"]
    wide, _ = drawings(line_chart("t", series, Axis(label="x"), Axis(label="y")))
    assert texts(wide, "end")[0] == "0"


def test_the_learning_rate_has_ticks_that_can_be_read():
    points = tuple((float(step), 3e-4 * (1 - step / 200)) for step in range(0, 201, 10))
    wide, narrow = drawings(
        line_chart("lr", [Series(name="lr", points=points)], Axis(label="step"), Axis(label="lr", from_zero=False))
    )
    for drawing in (wide, narrow):
        assert texts(drawing, "end") == ["0", "0.0001", "0.0002", "0.0003"]


def test_a_bar_of_shares_names_every_part_but_the_empty_ones():
    markup = share_bar([Part("compute", 0.79), Part("<data>", 0.206), Part("nothing", 0.0), Part("rest", 0.004, "red")])
    bar, key = ET.fromstring(f"<div>{markup}</div>")
    assert bar.get("aria-label") == "compute 79%, <data> 21%, rest 0.4%"
    assert [piece.get("style") for piece in bar][2] == "flex:0.00400;background:red"
    assert ["".join(row.itertext()) for row in key] == ["compute 79%", "<data> 21%", "rest 0.4%"]


def test_what_a_log_axis_cannot_show_is_dropped_and_nothing_is_an_empty_drawing():
    bad = Series(name="bad", points=((0, 1), (-1, 2)))
    assert line_chart("t", [bad], Axis(label="x", log=True), Axis(label="y")) == ""
    assert line_chart("t", [], Axis(label="x"), Axis(label="y")) == ""


def test_names_are_escaped_and_one_flat_value_still_draws():
    markup = line_chart(
        'a<b>"', [Series(name="<i>", points=((4, 0), (8, 0)))], Axis(label="&", log=True, base=2), Axis(label="y")
    )
    wide, narrow = drawings(markup)
    assert wide.get("aria-label") == narrow.get("aria-label") == 'a<b>"'
    assert "<i>" not in markup.replace("&lt;i&gt;", "")


def test_ticks_are_few_and_round():
    markup = line_chart(
        "t",
        [Series(name="s", points=tuple((2.0**k, k + 1.0) for k in range(12, 31)))],
        Axis(label="bytes", log=True, base=2),
        Axis(label="GB/s"),
    )
    for drawing, most in zip(drawings(markup), (8, 4), strict=True):
        assert 3 <= len([label for label in texts(drawing, "middle") if re.match(r"[\d.,e+]+$", label)]) <= most


def test_ticks_of_memory_are_whole_binary_units():
    series = [Series(name="limit", points=((1, 10.6 * 2**30), (2, 10.6 * 2**30)))]
    markup = line_chart("t", series, Axis(label="batch"), Axis(label="memory", tick=format_bytes, base=2))
    assert texts(drawings(markup)[0], "end") == ["0 B", "4 GiB", "8 GiB"]


def test_series_of_one_hue_share_their_colour():
    points, roof = (Series(name=style, points=((1, 1), (2, 2)), style=style, hue=3) for style in ("points", "roof"))
    own = Series(name="own", points=((1, 1), (2, 2)))
    markup = line_chart("t", [points, roof, own], Axis(label="x"), Axis(label="y"))
    assert set(re.findall(r"var\(--s(\d)\)", markup)) == {"3", "2"}


def test_one_measured_place_is_no_chart_whatever_limit_stands_by_it():
    one = Series(name="measured", points=((64, 5), (64, 6)), style="points")
    limit = Series(name="limit", points=((1, 9), (100, 9)), style="roof")
    assert line_chart("t", [one, limit], Axis(label="x"), Axis(label="y")) == ""
    assert line_chart("t", [one, limit], Axis(label="x"), Axis(label="y"), fewest_places=1)


def test_a_log_axis_without_a_power_between_its_ends_has_round_ticks():
    for base, low, high in ((2, 33, 60), (2, 20, 28), (10, 2.2, 4.6)):
        line = Series(name="a", points=((low, 1), (high, 2)))
        ticks = texts(
            drawings(line_chart("t", [line], Axis(label="x", log=True, base=base), Axis(label="y")))[0], "middle"
        )
        assert len(ticks) > 2, ticks
        assert all(low / 1.15 <= float(tick) <= high * 1.15 for tick in ticks[:-1]), ticks
