"""Draw the README's picture from the demo's two runs: ``holdfast demo && python docs/picture.py``."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
STYLES = {"erm": ("plain training (erm)", "#b8bec6"), "group-balanced": ("group-balanced", "#0f766e")}


def draw(runs: Path, target: Path) -> None:
    """Bars of test accuracy by group, one colour per method, with 95% intervals."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(8, 3.2))
    width, names = 0.36, []
    for place, (method, (label, colour)) in enumerate(STYLES.items()):
        groups = json.loads((runs / method / "results.json").read_text())["test"]["groups"]
        names = [group["name"].replace("/", ",\n") for group in groups]
        heights = [100 * group["accuracy"] for group in groups]
        errors = [
            [height - 100 * group["low"] for height, group in zip(heights, groups, strict=True)],
            [100 * group["high"] - height for height, group in zip(heights, groups, strict=True)],
        ]
        at = [number + (place - 0.5) * width for number in range(len(groups))]
        axes.bar(at, heights, width, color=colour, label=label, yerr=errors, ecolor="#4b5563", capsize=2)
        for x, height, above in zip(at, heights, errors[1], strict=True):
            axes.annotate(f"{height:.0f}", (x, height + above), (0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 115)
    axes.set_yticks(range(0, 101, 25))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None}, bbox_inches="tight", facecolor="white")


if __name__ == "__main__":
    draw(ROOT / "runs" / "demo", ROOT / "docs" / "images" / "demo.svg")
