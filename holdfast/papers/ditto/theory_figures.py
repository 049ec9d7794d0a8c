"""Ditto's Figures 1 and 2, drawn from results: simulated points over the curves of the theory."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from holdfast.papers.ditto import theory
from holdfast.papers.ditto.theory_cells import lambdas_2
from holdfast.papers.engine.results import Results
from holdfast.report.html.charts import Axis
from holdfast.report.html.drawing import Curve, Panel, drawing
from holdfast.theory.ditto import PointEstimation, best_lambda, error, fairest_lambda


def draw_1(results: Results) -> str:
    """Figure 1: the error against λ, with a band for the spread over clients."""
    titles = {"clean": "No adversaries, 8 clients", "attacked": "8 of 16 clients malicious"}
    fairest = fairest_lambda(PointEstimation(**theory.PANELS_1["attacked"]))
    return drawing(
        "Ditto, Figure 1: the error is least at the λ of the theory, which is smaller under attack",
        "Squared error of a benign client against lambda, without and with malicious clients. Both curves are U-shaped "
        "with their minimum at the theoretical lambda, 2.13 and 1.19.",
        [_panel_1(results, case, title) for case, title in titles.items()],
        [
            "Point estimation, 30 samples per client with noise 0.8, τ = 0.1 among benign and τₐ = 0.5 among malicious "
            f"clients. {_federations(results)} for all λ.",
            f"Under attack the band is narrowest at λ = {fairest:.2f}, not at λₐ*: the clients' errors are correlated "
            "through the global model.",
        ],
    )


def _panel_1(results: Results, case: str, title: str) -> Panel:
    setting, fine = PointEstimation(**theory.PANELS_1[case]), np.geomspace(0.01, 100, 161)
    names = [theory.name_1(case, lambda_) for lambda_ in theory.LAMBDAS]
    means = np.array([results.mean(name, "error") for name in names]) / 1000
    half = np.array([results.mean(name, "spread") for name in names]) / 1000 / math.sqrt(setting.K_b)
    local, everywhere = (results.mean(f"{case}/{end}", "error") / 1000 for end in ("0", "inf"))
    band = f"± std over benign clients / √{setting.K_b}"
    return Panel(
        title,
        (
            Curve(
                band,
                _pairs(theory.LAMBDAS, means - half),
                "teal",
                "band",
                upper=_pairs(theory.LAMBDAS, means + half),
            ),
            Curve("", ((0.01, local), (100.0, local)), "grey", "dashed", text="local, λ = 0"),
            Curve("", ((0.01, everywhere), (100.0, everywhere)), "orange", "dashed", text="global, λ = ∞"),
            Curve("closed form", _pairs(fine, error(setting, fine)), "ink"),
            Curve("simulated", _pairs(theory.LAMBDAS, means), "teal", "dots"),
        ),
        x=Axis(0.01, 100, tuple((10.0**power, f"{10.0**power:g}") for power in range(-2, 3)), log=True),
        y=Axis(0.0, 0.035, tuple((tick / 1000, f"{tick / 1000:g}") for tick in range(0, 36, 5))),
        along="λ",
        up="squared error of a benign client",
        marks=((best_lambda(setting), f"{'λₐ*' if setting.K_a else 'λ*'} = {best_lambda(setting):.2f}"),),
    )


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
        [_panel_2(results, case, title) for case, title in titles.items()],
        [
            f"Lines are closed forms, dots simulated. {_federations(results)} for all methods. Samples have noise 1 "
            "on the left and 0.5 on the right.",
            "Left of τ = τₐ adversaries are closer to the common mean than benign clients, outside of the document's "
            "definition of an attack; the formulas hold all the same.",
        ],
    )


def _panel_2(results: Results, case: str, title: str) -> Panel:
    looks = {
        "local": ("local, λ = 0", "grey"),
        "global": ("global, λ = 1000", "orange"),
        "ditto": ("Ditto, λ = λ*", "teal"),
    }
    fine = [float(value) for value in np.geomspace(1, 20, 81)]
    settings = [PointEstimation(**theory.setting_2(case, relatedness)) for relatedness in fine]
    closed = np.array([error(setting, lambdas_2(setting)) for setting in settings])
    curves = []
    for method, (name, colour) in looks.items():
        found = [results.mean(theory.name_2(case, x), method) / 1000 for x in theory.RELATEDNESS]
        curves.append(Curve(name, _pairs(fine, closed[:, theory.METHODS.index(method)]), colour))
        curves.append(Curve("", _pairs(theory.RELATEDNESS, found), colour, "dots"))
    ticks = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    return Panel(
        title,
        tuple(curves),
        x=Axis(1, 20, tuple((float(tick), str(tick)) for tick in (1, 2, 5, 10, 20)), log=True),
        y=Axis(0.004, 1.0, tuple((tick, f"{tick:g}") for tick in ticks), log=True),
        along="relatedness 1/τ",
        up="squared error of a benign client",
        marks=((10.0, "τ = τₐ"),) if case == "attacked" else (),
    )


def _federations(results: Results) -> str:
    return f"{theory.TRIALS[results.scale] * len(results.seeds):,} simulated federations, the same"


def _pairs(x: Iterable[float], y: Iterable[float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(a), float(b)) for a, b in zip(x, y, strict=True))
