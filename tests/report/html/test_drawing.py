from xml.etree import ElementTree

import pytest

from holdfast.report.html.charts import Axis
from holdfast.report.html.drawing import COLOURS, Curve, Panel, drawing

SVG = "{http://www.w3.org/2000/svg}"
X = Axis(0.1, 10.0, ((0.1, "0.1"), (1.0, "1"), (10.0, "10")), log=True)
Y = Axis(0.0, 2.0, ((0.0, "none"), (2.0, "two")))


def panel(*curves, **changes):
    return Panel(**{"title": "A panel", "curves": curves, "x": X, "y": Y, "along": "λ", "up": "error", **changes})


def read(*panels, notes=()):
    return ElementTree.fromstring(drawing("A <title>", "What it shows.", panels, notes))


def words(svg):
    return [element.text for element in svg.iter(f"{SVG}text")]


def test_it_is_well_formed_and_says_what_it_shows():
    svg = read(panel(), panel(title="Another"), notes=["A note."])
    assert svg.find(f"{SVG}title").text == "A <title>"
    assert svg.find(f"{SVG}desc").text == "What it shows."
    assert {"A panel", "Another", "λ", "error", "0.1", "two", "A note."} <= set(words(svg))


def test_points_are_where_the_axes_say():
    svg = read(panel(Curve("c", ((0.1, 0.0), (1.0, 1.0), (10.0, 2.0)), look="dots")))
    dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in svg.iter(f"{SVG}circle")][:3]
    (left, bottom), (middle, half), (right, top) = dots
    assert middle - left == pytest.approx(right - middle, abs=0.2)
    assert bottom - half == pytest.approx(half - top, abs=0.2)
    ticks = {text.text: float(text.get("x")) for text in svg.iter(f"{SVG}text") if text.text in ("0.1", "1", "10")}
    assert ticks == pytest.approx({"0.1": left, "1": middle, "10": right}, abs=0.1)


def test_panels_stand_side_by_side_within_the_drawing():
    curve = Curve("c", ((0.1, 1.0), (10.0, 1.0)), look="dots")
    svg = read(panel(curve), panel(curve))
    dots = [float(dot.get("cx")) for dot in svg.iter(f"{SVG}circle")][:4]
    assert dots == sorted(dots) and len(set(dots)) == 4
    assert dots[-1] < float(svg.get("width"))


def test_a_band_goes_along_its_lower_edge_and_back_along_its_upper():
    svg = read(panel(Curve("", ((0.1, 0.5), (10.0, 0.5)), "teal", "band", upper=((0.1, 1.5), (10.0, 1.5)))))
    (band,) = [path for path in svg.iter(f"{SVG}path") if path.get("fill") == COLOURS["teal"]]
    corners = [tuple(map(float, place.split())) for place in band.get("d").strip("MZ").split("L")]
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = corners
    assert (x1, x2) == (x4, x3)
    assert y1 == y2 > y3 == y4


def test_curves_of_one_name_share_an_entry_in_the_legend_and_nameless_ones_have_none():
    curves = (Curve("shared", ((1.0, 1.0), (2.0, 1.0))), Curve("", ((1.0, 1.0), (2.0, 1.0)), text="said here"))
    svg = read(panel(*curves), panel(*curves))
    assert words(svg).count("shared") == 1
    assert words(svg).count("said here") == 2


def test_a_long_legend_goes_on_in_the_next_row_and_a_long_note_in_the_next_line():
    names = [f"a rather long name of a curve, number {number}" for number in range(6)]
    svg = read(panel(*(Curve(name, ((1.0, 1.0), (2.0, 1.0))) for name in names)), notes=["word " * 60])
    heights = {text.text: float(text.get("y")) for text in svg.iter(f"{SVG}text")}
    assert len({heights[name] for name in names}) > 1
    lines = [text for text in heights if text.startswith("word word")]
    assert len(lines) > 1
    assert max(heights.values()) < float(svg.get("height"))


def test_marks_stand_over_their_place():
    svg = read(panel(marks=((1.0, "here"),)))
    (label,) = [text for text in svg.iter(f"{SVG}text") if text.text == "here"]
    assert label.get("x") in [line.get("x1") for line in svg.iter(f"{SVG}line") if line.get("stroke-dasharray")]
