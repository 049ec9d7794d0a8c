"""Draw the two pictures of `docs/architecture.md`: ``python docs/diagrams.py``.

Lanes are who acts, time goes down. A picture is a list of boxes and arrows below, so it is changed with the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

IMAGES = Path(__file__).parent / "images"
_INK, _ACCENT, _PALE, _BAND = "#1f2937", "#0f766e", "#eef2f3", "#f7f5ef"
_LANE = 3.4


@dataclass(frozen=True)
class Box:
    """What somebody does.

    Attributes:
        lane: who, by place.
        row: when, from the top.
        text: what is done; its first line is the function's name.
        ours: whether methods decide here: these boxes have the accent.
    """

    lane: int
    row: float
    text: str
    ours: bool = False


@dataclass(frozen=True)
class Arrow:
    """From one box to another, by their places in the list, with a word on it."""

    start: int
    end: int
    text: str = ""


@dataclass(frozen=True)
class Band:
    """Rows that belong together, such as those of every step."""

    first: float
    last: float
    text: str
    on_the_left: bool = False


TRAINING = (
    ("your loop, or `fit`", "Curator", "policies (a Chain)", "objective, PostTraining"),
    [
        Box(1, 0, "validate(planned)"),
        Box(2, 0, "validate\nrefuse what can't work", ours=True),
        Box(0, 1.35, "start"),
        Box(1, 1.35, "who is due?\none ModelOutputs for all"),
        Box(2, 1.35, "update(context) -> Plan\nrequest(Restart, ...)", ours=True),
        Box(1, 2.5, "merge the parts,\ncarry out requests"),
        Box(1, 3.75, "SamplingOrder\n-> Batch"),
        Box(0, 3.75, "for batch in curator"),
        Box(0, 4.75, "Forward(model, batch)"),
        Box(3, 4.75, "objective(Forward):\nthe weighted loss", ours=True),
        Box(0, 5.75, "backward,\noptimizer.step"),
        Box(1, 5.75, "end_step"),
        Box(2, 5.75, "update, if it acts\nbetween steps", ours=True),
        Box(0, 7.05, "evaluate on validation,\nremember the best"),
        Box(1, 7.05, "end_epoch"),
        Box(2, 7.05, "update, if due;\nsave_artifacts", ours=True),
        Box(0, 8.15, "save a checkpoint"),
        Box(0, 9.4, "take the best weights"),
        Box(3, 9.4, "PostTraining\n(DFR refits the head)", ours=True),
        Box(0, 10.4, "test report by group"),
    ],
    [
        Arrow(0, 1),
        Arrow(2, 3),
        Arrow(3, 4),
        Arrow(4, 5),
        Arrow(5, 6),
        Arrow(6, 7),
        Arrow(7, 8),
        Arrow(8, 9),
        Arrow(9, 10),
        Arrow(10, 11),
        Arrow(11, 12),
        Arrow(13, 14),
        Arrow(14, 15),
        Arrow(13, 16),
        Arrow(17, 18),
        Arrow(18, 19),
    ],
    [Band(3.2, 6.35, "every step"), Band(3.1, 8.65, "every epoch")],
)

ROUND = (
    ("server: Federation", "Executor", "ClientRuntime", "methods"),
    [
        Box(0, 0, "prepare\nresolve methods, check"),
        Box(3, 0, "factory.resolve(methods,\nthreat); check", ours=True),
        Box(0, 1.25, "select\nthe round's cohort"),
        Box(1, 1.25, "cut into chunks:\nAssignments"),
        Box(2, 1.25, "StackedClients: rows\n(clients, P), batches"),
        Box(2, 2.5, "sgd_step of the shared\nmodel's copies"),
        Box(3, 2.5, "alongside: update(rows,\ngradient), e.g. Ditto.after", ours=True),
        Box(3, 3.6, "joint: train(stack, rows)\ninstead of both", ours=True),
        Box(2, 3.6, "write rows to stores,\nsend local - received"),
        Box(1, 4.75, "updates (cohort, P),\nlosses"),
        Box(0, 4.75, "attack.send"),
        Box(0, 5.75, "guard: drop what is\nnot finite"),
        Box(0, 6.85, "objective.combine\nwith the aggregator", ours=True),
        Box(0, 7.95, "new shared model;\nreport, checkpoint"),
        Box(1, 9.2, "personalize_all"),
        Box(3, 9.2, "post-hoc: choose_hyper-\nparameters, personalize", ours=True),
        Box(0, 9.2, "rounds are over"),
        Box(0, 10.2, "report on every client"),
    ],
    [
        Arrow(0, 1),
        Arrow(2, 3),
        Arrow(3, 4),
        Arrow(4, 5),
        Arrow(5, 6, "gradient"),
        Arrow(5, 8),
        Arrow(8, 9),
        Arrow(9, 10),
        Arrow(10, 11),
        Arrow(11, 12),
        Arrow(12, 13),
        Arrow(16, 14),
        Arrow(14, 15),
        Arrow(16, 17),
    ],
    [Band(1.95, 3.0, "every local step", on_the_left=True), Band(0.7, 8.5, "every round")],
)


def draw(picture: tuple[tuple[str, ...], list[Box], list[Arrow], list[Band]], target: Path) -> None:
    """Write a picture as SVG."""
    lanes, boxes, arrows, bands = picture
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.family": "sans-serif"})
    bottom = max(box.row for box in boxes) + 0.9
    figure, axes = plt.subplots(figsize=(10.5, 0.72 * bottom))
    for number, lane in enumerate(lanes):
        axes.text(_LANE * number, -1.0, lane, ha="center", weight="bold", color=_INK, fontsize=10)
        axes.plot([_LANE * number] * 2, [-0.75, bottom - 0.3], color="#d6dbe0", linewidth=1, zorder=0)
    left, right = -1.6, _LANE * (len(lanes) - 1) + 1.6
    for depth, band in enumerate(sorted(bands, key=lambda band: band.first - band.last)):
        inset = 0.18 * depth
        size = (right - left - 2 * inset, band.last - band.first)
        axes.add_patch(Rectangle((left + inset, band.first), *size, facecolor=_BAND, edgecolor="#d9d2bf", zorder=-1))
        x, side = (left + inset + 0.1, "left") if band.on_the_left else (right - inset - 0.1, "right")
        axes.text(x, band.last - 0.1, band.text, ha=side, fontsize=8.5, style="italic", color="#7a6f4f")
    for arrow in arrows:
        _arrow(axes, boxes[arrow.start], boxes[arrow.end], arrow.text)
    for box in boxes:
        _box(axes, box)
    axes.set_xlim(left - 0.1, right + 0.1)
    axes.set_ylim(bottom, -1.4)
    axes.axis("off")
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def _box(axes: plt.Axes, box: Box) -> None:
    x, face, edge = _LANE * box.lane, "white", "#9aa4ae"
    if box.ours:
        face, edge = "#e6f4f1", _ACCENT
    shape = FancyBboxPatch(
        (x - 1.3, box.row - 0.36),
        2.6,
        0.72,
        boxstyle="round,pad=0.02,rounding_size=0.12",
        facecolor=face,
        edgecolor=edge,
    )
    axes.add_patch(shape)
    axes.text(x, box.row, box.text, ha="center", va="center", fontsize=8.5, color=_INK, linespacing=1.25)


def _arrow(axes: plt.Axes, start: Box, end: Box, text: str) -> None:
    x0, x1, y0, y1 = _LANE * start.lane, _LANE * end.lane, start.row, end.row
    if start.lane == end.lane:
        y0, y1 = y0 + 0.38, y1 - 0.38
    else:
        side = 1.32 if x1 > x0 else -1.32
        x0, x1 = x0 + side, x1 - side
    axes.annotate(
        "", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "-|>", "color": _INK, "lw": 1, "shrinkA": 0, "shrinkB": 0}
    )
    if text:
        axes.text((x0 + x1) / 2, (y0 + y1) / 2 - 0.1, text, ha="center", fontsize=7.5, color=_ACCENT)


def main() -> None:
    """Write both."""
    draw(TRAINING, IMAGES / "training-loop.svg")
    draw(ROUND, IMAGES / "federated-round.svg")


if __name__ == "__main__":
    main()
