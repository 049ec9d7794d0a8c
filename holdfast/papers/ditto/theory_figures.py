"""Ditto's Figures 1 and 2, drawn from results: simulated points over the curves of the theory."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from holdfast.papers.ditto import theory
from holdfast.papers.ditto.theory_cells import lambdas_2
from holdfast.papers.engine.drawing import COLOURS, drawing, mark
from holdfast.papers.engine.results import Results
from holdfast.theory.ditto import PointEstimation, best_lambda, error, fairest_lambda

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_1(results: Results) -> str:
    """Figure 1: the error against λ, with a band for the spread over clients."""
    titles = {"clean": "No adversaries, 8 clients", "attacked": "8 of 16 clients malicious"}
    fairest = fairest_lambda(PointEstimation(**theory.PANELS_1["attacked"]))
    return drawing(
        "Ditto, Figure 1: the error is least at the λ of the theory, which is smaller under attack",
        "Squared error of a benign client against lambda, without and with malicious clients. Both curves are U-shaped "
        "with their minimum at the theoretical lambda, 2.13 and 1.19.",
        {title: partial(_panel_1, results, case) for case, title in titles.items()},
        [
            "Point estimation, 30 samples per client with noise 0.8, τ = 0.1 among benign and τₐ = 0.5 among malicious "
            f"clients. {_federations(results)} for all λ.",
            f"Under attack the band is narrowest at λ = {fairest:.2f}, not at λₐ*: the clients' errors are correlated "
            "through the global model.",
        ],
    )


def _panel_1(results: Results, case: str, axes: Axes) -> None:
    setting, fine = PointEstimation(**theory.PANELS_1[case]), np.geomspace(0.01, 100, 161)
    names = [theory.name_1(case, lambda_) for lambda_ in theory.LAMBDAS]
    means = np.array([results.mean(name, "error") for name in names]) / 1000
    half = np.array([results.mean(name, "spread") for name in names]) / 1000 / math.sqrt(setting.K_b)
    teal, band = COLOURS["teal"], f"± std over benign clients / √{setting.K_b}"
    axes.fill_between(theory.LAMBDAS, means - half, means + half, color=teal, alpha=0.16, linewidth=0, label=band)
    for end, name, colour in (("0", "local, λ = 0", "grey"), ("inf", "global, λ = ∞", "orange")):
        height = results.mean(f"{case}/{end}", "error") / 1000
        axes.axhline(height, color=COLOURS[colour], linestyle="--")
        axes.annotate(name, (100, height), (0, 3), textcoords="offset points", ha="right", color=COLOURS[colour])
    axes.plot(fine, error(setting, fine), color=COLOURS["ink"], label="closed form")
    axes.plot(theory.LAMBDAS, means, "o", color=teal, label="simulated", gid=f"simulated-{case}", clip_on=False)
    mark(axes, best_lambda(setting), f"{'λₐ*' if setting.K_a else 'λ*'} = {best_lambda(setting):.2f}")
    axes.set(xscale="log", xlim=(0.01, 100), ylim=(0, 0.035), xlabel="λ", ylabel="squared error of a benign client")
    axes.set_xticks(ticks := [0.01, 0.1, 1, 10, 100], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def draw_2(results: Results) -> str:
    """Figure 2: the error against relatedness for local models, Ditto and a global model."""
    titles = {
        "clean": "No adversaries, 20 clients of 20 samples",
        "attacked": "3 of 10 clients malicious, 10 samples each",
    }
    return drawing(
        "Ditto, Figure 2: below local and global models however related the clients are",
        "Squared error of a benign client against relatedness. Local models are flat, the global model improves with "
        "relatedness, Ditto is below both and merges with local at the left and with global at the right.",
        {title: partial(_panel_2, results, case) for case, title in titles.items()},
        [
            f"Lines are closed forms, dots simulated. {_federations(results)} for all methods. Samples have noise 1 "
            "on the left and 0.5 on the right.",
            "Left of τ = τₐ adversaries are closer to the common mean than benign clients, outside of the document's "
            "definition of an attack; the formulas hold all the same.",
        ],
    )


def _panel_2(results: Results, case: str, axes: Axes) -> None:
    looks = {
        "local": ("local, λ = 0", COLOURS["grey"]),
        "global": ("global, λ = 1000", COLOURS["orange"]),
        "ditto": ("Ditto, λ = λ*", COLOURS["teal"]),
    }
    fine = [float(value) for value in np.geomspace(1, 20, 81)]
    settings = [PointEstimation(**theory.setting_2(case, relatedness)) for relatedness in fine]
    closed = np.array([error(setting, lambdas_2(setting)) for setting in settings])
    for method, (name, colour) in looks.items():
        found = [results.mean(theory.name_2(case, x), method) / 1000 for x in theory.RELATEDNESS]
        axes.plot(fine, closed[:, theory.METHODS.index(method)], color=colour, label=name)
        axes.plot(theory.RELATEDNESS, found, "o", color=colour, gid=f"{method}-{case}", clip_on=False)
    if case == "attacked":
        mark(axes, 10.0, "τ = τₐ")
    axes.set(xscale="log", yscale="log", xlim=(1, 20), ylim=(0.004, 1))
    axes.set(xlabel="relatedness 1/τ", ylabel="squared error of a benign client")
    axes.set_xticks(across := [1, 2, 5, 10, 20], [str(tick) for tick in across])
    axes.set_yticks(up := [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], [f"{tick:g}" for tick in up])
    axes.minorticks_off()


def _federations(results: Results) -> str:
    return f"{theory.TRIALS[results.scale] * len(results.seeds):,} simulated federations, the same"
