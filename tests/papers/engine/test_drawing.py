import subprocess
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from holdfast.errors import MissingDependencyError
from holdfast.papers.engine.drawing import COLOURS, drawing, mark

SVG = "{http://www.w3.org/2000/svg}"


def panel(axes):
    axes.plot([0.1, 1, 10], [0, 1, 2], "o", color=COLOURS["teal"], label="shared", gid=f"dots-{id(axes)}")
    axes.set(xscale="log", xlim=(0.1, 10), ylim=(0, 2), xlabel="λ", ylabel="error")
    mark(axes, 1, "here")


def read(**panels):
    return ElementTree.fromstring(drawing("A <title>", "What it shows.", panels, ["A note.", "word " * 60]))


def words(svg):
    return [element.text for element in svg.iter(f"{SVG}text")]


def test_it_is_well_formed_and_its_text_is_text():
    svg = read(One=panel, Two=panel)
    found = words(svg)
    assert {"A <title>", "One", "Two", "λ", "error", "here"} <= set(found)
    assert any("A note." in text for text in found)
    assert "What it shows." in "".join(svg.itertext())


def test_curves_of_one_label_share_an_entry_of_the_legend():
    assert words(read(One=panel, Two=panel)).count("shared") == 1


def test_points_are_where_the_scale_says():
    svg = read(One=panel)
    (group,) = [group for group in svg.iter(f"{SVG}g") if group.get("id", "").startswith("dots-")]
    (x1, y1), (x2, y2), (x3, y3) = [(float(dot.get("x")), float(dot.get("y"))) for dot in group.iter(f"{SVG}use")]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.01) and y1 - y2 == pytest.approx(y2 - y3, abs=0.01)
    assert x1 < x2 and y1 > y2


def test_the_same_figure_is_the_same_file_whatever_the_user_set():
    def plain(axes):
        axes.plot([0, 1], [0, 1], label="line")

    first = drawing("t", "d", {"p": plain})
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": None, "axes.facecolor": "black", "lines.linestyle": ":"}):
        assert drawing("t", "d", {"p": plain}) == first
        assert mpl.rcParams["font.size"] == 30
    assert "<dc:date>" not in first and "Matplotlib" not in first


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[figures\]"):
        drawing("t", "d", {"p": panel})


def test_declaring_figures_does_not_import_matplotlib():
    modules = (
        "holdfast.papers.epic.figures, holdfast.papers.ditto.theory_figures, holdfast.papers.personalization.figures"
    )
    script = f"import {modules}, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
