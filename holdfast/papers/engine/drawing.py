"""A figure of a document as one SVG file: panels side by side, drawn by matplotlib (extra ``figures``).

Unlike the charts of a report (`holdfast.report.html.charts`), which follow the page they stand in, a figure is a file
of its own with a white ground, for a folder of results, a documentation page or a slide. Its text is real text. The
same results give the same file, to the byte, with the same version of matplotlib.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Draws what a panel shows, its scales, ticks and labels.
Panel = Callable[["Axes"], None]

#: Colours that can be told apart without seeing red and green, and in print.
COLOURS = {"ink": "#1b1d21", "grey": "#7d848c", "teal": "#0f766e", "orange": "#c2570c", "blue": "#1d5fa8"}

_SOFT = "#5c6269"
#: Letters in a line of notes; heights of panels, of the legend and of such a line, in inches.
_LETTERS, _PANELS, _LEGEND, _LINE = 140, 3.8, 0.3, 0.19
_STYLE: dict[Any, Any] = {
    **{"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.family": "sans-serif", "font.size": 9},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.edgecolor": _SOFT},
    **{"axes.grid": True, "axes.grid.axis": "y", "grid.color": "#e3e3de", "axes.axisbelow": True},
    **{"axes.labelcolor": _SOFT, "xtick.color": _SOFT, "ytick.color": _SOFT, "ytick.major.size": 0},
    **{"xtick.minor.visible": False, "ytick.minor.visible": False, "lines.linewidth": 1.6, "lines.markersize": 4.5},
    **{"axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 20},
}


def drawing(title: str, described: str, panels: Mapping[str, Panel], notes: Sequence[str] = ()) -> str:
    """An SVG file.

    Args:
        title: of the whole figure.
        described: what it shows, in a sentence, for those who don't see it.
        panels: what draws each, from the left, by the title above it. Curves of one label share an entry of the legend.
        notes: paragraphs below the legend.

    Returns:
        The file's text.

    Raises:
        MissingDependencyError: if matplotlib isn't installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an optional package
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("figures need matplotlib; pip install 'holdfast[figures]'") from error
    lines = [line for note in notes for line in textwrap.wrap(note, _LETTERS)]
    below = _LINE * (len(lines) + 0.5)
    height = _PANELS + _LEGEND + below
    file = io.StringIO()
    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE}):
        above = ConstrainedLayoutEngine(rect=(0, 1 - _PANELS / height, 1, _PANELS / height))
        figure = Figure(figsize=(10, height), layout=above)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        entries: dict[str, Any] = {}
        for (name, panel), axes in zip(panels.items(), figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
            axes.set_title(name)
            panel(axes)
            handles, labels = axes.get_legend_handles_labels()
            entries.update(zip(labels, handles, strict=True))
        row = {"bbox_to_anchor": (0, below / height), "ncols": len(entries), "frameon": False}
        figure.legend(entries.values(), entries.keys(), loc="lower left", **row)
        figure.text(0.01, below / height, "\n".join(lines), va="top", color=_SOFT, linespacing=1.4)
        about = {"Title": title, "Description": described, "Date": None, "Creator": None}
        figure.savefig(file, format="svg", metadata=about)
    return file.getvalue()


def mark(axes: Axes, x: float, text: str) -> None:
    """Point out a place on the horizontal axis by a line with `text` above it."""
    axes.axvline(x, color=COLOURS["ink"], linestyle="--", linewidth=1)
    axes.annotate(text, (x, 1), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points", ha="center")
