import re
import xml.etree.ElementTree as ET

from gpudoc.render.chart import HEIGHT, WIDTH, Axis, Series, line_chart
from gpudoc.units import format_bytes

SVG = "{http://www.w3.org/2000/svg}"


def circles(markup):
    return [(float(c.get("cx")), float(c.get("cy"))) for c in ET.fromstring(markup).iter(f"{SVG}circle")]


def test_points_stand_where_their_values_say():
    line = Series(name="copy", points=((1, 10), (10, 20), (100, 40)))
    places = circles(line_chart("t", [line], Axis(label="size", log=True), Axis(label="GB/s")))
    (x1, y1), (x2, y2), (x3, y3) = places
    assert abs((x2 - x1) - (x3 - x2)) < 0.2, "decades are equally wide"
    assert abs((y1 - y2) * 2 - (y2 - y3)) < 0.3, "the y axis is linear and grows upward"
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)


def test_styles_differ():
    roof = Series(name="roof", points=((1, 1), (2, 2)), style="roof")
    points = Series(name="p", points=((1, 1),), style="points")
    markup = line_chart("t", [roof, points], Axis(label="x"), Axis(label="y"))
    assert len(circles(markup)) == 1
    assert markup.count("stroke-dasharray") == 2, "the line and its mark in the legend"


def test_what_a_log_axis_cannot_show_is_dropped_and_nothing_is_an_empty_drawing():
    bad = Series(name="bad", points=((0, 1), (-1, 2)))
    assert line_chart("t", [bad], Axis(label="x", log=True), Axis(label="y")) == ""
    assert line_chart("t", [], Axis(label="x"), Axis(label="y")) == ""


def test_names_are_escaped_and_one_flat_value_still_draws():
    markup = line_chart(
        'a<b>"', [Series(name="<i>", points=((4, 0), (8, 0)))], Axis(label="&", log=True, base=2), Axis(label="y")
    )
    root = ET.fromstring(markup)
    assert root.get("aria-label") == 'a<b>"'
    assert "<i>" not in markup.replace("&lt;i&gt;", "")


def test_ticks_are_few_and_round():
    markup = line_chart(
        "t",
        [Series(name="s", points=tuple((2.0**k, k + 1.0) for k in range(12, 31)))],
        Axis(label="bytes", log=True, base=2),
        Axis(label="GB/s"),
    )
    labels = re.findall(r'text-anchor="middle" fill="var\(--soft\)">([^<]+)<', markup)
    assert 3 <= len([label for label in labels if re.match(r"[\d.e+]+$", label)]) <= 7


def test_ticks_of_memory_are_whole_binary_units():
    series = [Series(name="limit", points=((1, 10.6 * 2**30), (2, 10.6 * 2**30)))]
    markup = line_chart("t", series, Axis(label="batch"), Axis(label="memory", tick=format_bytes, base=2))
    labels = re.findall(r'text-anchor="end" fill="var\(--soft\)">([^<]+)<', markup)
    assert labels == ["0 B", "4 GiB", "8 GiB"]


def test_series_of_one_hue_share_their_colour():
    points, roof = (Series(name=style, points=((1, 1), (2, 2)), style=style, hue=3) for style in ("points", "roof"))
    own = Series(name="own", points=((1, 1), (2, 2)))
    markup = line_chart("t", [points, roof, own], Axis(label="x"), Axis(label="y"))
    assert set(re.findall(r"var\(--s(\d)\)", markup)) == {"3", "2"}
