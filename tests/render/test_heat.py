"""The heat map: the oddest node first, every GPU a cell, what was not measured never coloured as well."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from gpudoc.fleet.record import Spot
from gpudoc.render.heat import colour_of, heat_map, order_of


def test_the_oddest_node_comes_first_and_the_unmeasured_last():
    z = {Spot(0, 0): -1.0, Spot(0, 1): 0.5, Spot(1, 0): -9.0, Spot(2, 0): 0.0}
    assert order_of(z, 4) == [1, 0, 2, 3]


def test_colours_follow_the_distance_and_a_missing_figure_has_its_own():
    usual, odd, missing = colour_of(0.3), colour_of(-5.0), colour_of(None)
    assert len({usual, odd, missing, colour_of(-7.0)}) == 4
    assert colour_of(2.0) == usual


def test_every_gpu_is_one_cell_and_the_svg_is_well_formed():
    z = {(Spot(n, g),): float(-n) for n in range(250) for g in range(8)}
    svg = heat_map("compute & all", z, [8] * 250)
    ElementTree.fromstring(svg)
    cells = sum(path.count("M") for path in re.findall(r'<path fill="[^"]+" d="([^"]+)"', svg.split('<text x="11"')[0]))
    assert cells >= 2000
    # three bands of a hundred columns
    assert "201 to 250" in svg


def test_a_gpu_without_a_figure_has_the_missing_colour():
    z = {(Spot(0, 0),): 0.0}
    svg = heat_map("h2d", z, [2])
    assert len(re.findall(r'fill="var\(--line\)" d="M64', svg)) == 1


def test_a_node_with_fewer_gpus_has_fewer_cells():
    z = {(Spot(n, g),): 0.0 for n, g in ((0, 0), (0, 1), (1, 0))}
    svg = heat_map("h2d", z, [2, 1])
    assert 'var(--line)" d="M64' not in svg


def test_few_nodes_are_numbered_above_their_columns():
    svg = heat_map("h2d", {(Spot(n, 0),): -float(n) for n in range(3)}, [1, 1, 1])
    assert re.findall(r'y="32">(\w+)</text>', svg) == ["node", "2", "1", "0"]


def test_measures_of_nodes_have_one_row_and_groups_have_no_map():
    assert "<svg" in heat_map("loader", {(Spot(n),): 0.0 for n in range(3)}, [8, 8, 8])
    assert heat_map("all_reduce", {(Spot(0), Spot(1)): 0.0}, [8, 8]) == ""


def test_eight_thousand_gpus_are_a_small_picture():
    z = {(Spot(n, g),): -float((n * g) % 7) for n in range(1000) for g in range(8)}
    assert len(heat_map("compute", z, [8] * 1000)) < 250_000
