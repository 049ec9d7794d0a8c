"""Ditto (Li, Hu, Beirami and Smith, ICML 2021): Figures 1 and 2, the analysis of point estimation.

`FIGURE_1` has the error of a benign device against λ, without and with malicious devices; `FIGURE_2` has it against the
relatedness 1/τ for local models, Ditto at its best λ, and a global model. Every cell holds a Monte-Carlo measurement
beside the closed form, with which it shares no formula.

The theorems on fairness treat devices as independent. Under attack the spread over devices is least at a larger λ than
they say, and a claim of Figure 1 says so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from holdfast.federated.theory import best_lambda, fairest_lambda
from holdfast.federated.theory.closed_form import Vector
from holdfast.papers import ditto_theory_cells as cells
from holdfast.papers.engine.experiment import Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results

_FINE: tuple[Scale, ...] = ("cpu", "paper")
_CASES = cells.FIGURE_1

# ----------------------------------------------------------------------------------------------------------- Figure 1


def _curve(results: Results, case: str, metric: str) -> Vector:
    """A metric over the finite λ above zero."""
    return np.array([results.mean(cells.name_1(case, lambda_), metric) for lambda_ in cells.LAMBDAS])


def _lowest(results: Results, case: str, metric: str) -> float:
    """The λ at which a curve is least: of the parabola through its lowest points in λ/(1 + λ), where V is one."""
    values = _curve(results, case, metric)
    share = np.array([lambda_ / (1 + lambda_) for lambda_ in cells.LAMBDAS])
    place = int(np.clip(values.argmin(), 1, len(values) - 2))
    near = slice(place - 1, place + 2)
    square, line, _ = np.polyfit(share[near] - share[place], values[near] / values[place], 2)
    least = float(np.clip(share[place] - line / (2 * square), 1e-6, 1 - 1e-6))
    return least / (1 - least)


def _is_a_valley(results: Results) -> Verdict:
    holds, said = True, []
    for case in _CASES:
        values = _curve(results, case, "error")
        bottom = int(values.argmin())
        steps = np.diff(values)
        holds = holds and bool((steps[:bottom] < 0).all() and (steps[bottom:] > 0).all() and 0 < bottom < len(steps))
        ends = results.mean(f"{case}/0", "error"), results.mean(f"{case}/inf", "error")
        said.append(f"{case}: {ends[0]:.2f} local, {values[bottom]:.2f} at best, {ends[1]:.2f} global")
    return Verdict(holds, "; ".join(said))


def _minimum_is_the_theorems(results: Results, case: str) -> Verdict:
    found, best = _lowest(results, case, "error"), best_lambda(_CASES[case])
    return Verdict(abs(found / best - 1) < 0.05, f"lowest at {found:.3f}, the theorem says {best:.3f} (within 5%)")


def _adversaries_lower_lambda(results: Results) -> Verdict:
    clean, attacked = (_lowest(results, case, "error") for case in _CASES)
    return Verdict(attacked < 0.8 * clean, f"lowest at {attacked:.2f} under attack, at {clean:.2f} without")


def _one_device_is_fairest_there(results: Results) -> Verdict:
    found = {case: _lowest(results, case, "device_spread") for case in _CASES}
    holds = all(abs(found[case] / best_lambda(setting) - 1) < 0.05 for case, setting in _CASES.items())
    said = (f"{case}: lowest at {found[case]:.3f}, the theorem says {best_lambda(_CASES[case]):.3f}" for case in _CASES)
    return Verdict(holds, "; ".join(said) + " (within 5%)")


def _band_is_narrowest_nearby(results: Results) -> Verdict:
    found = {case: _lowest(results, case, "spread") for case in _CASES}
    ratios = {case: found[case] / best_lambda(setting) for case, setting in _CASES.items()}
    said = (f"{case}: narrowest at {found[case]:.2f}, {ratios[case]:.2f} times the best" for case in _CASES)
    return Verdict(all(0.75 < ratio < 1.25 for ratio in ratios.values()), "; ".join(said) + " (0.75 to 1.25)")


def _band_under_attack_is_elsewhere(results: Results) -> Verdict:
    found, exact = _lowest(results, "attacked", "spread"), fairest_lambda(_CASES["attacked"])
    theorem = best_lambda(_CASES["attacked"])
    return Verdict(
        abs(found / exact - 1) < 0.05 and found > 1.1 * theorem,
        f"narrowest at {found:.3f}; {exact:.3f} with the devices' correlation, {theorem:.3f} without",
    )


def _agree(results: Results, metrics: Sequence[str]) -> Verdict:
    """Measurements against closed forms, in standard errors of the mean over the seeds."""
    worst, where = max(
        (abs(results.mean(cell, f"{metric}_off")) * math.sqrt(len(results.seeds)), f"{metric} of {cell}")
        for cell in results.names
        for metric in metrics
    )
    points = len(results.names) * len(metrics)
    return Verdict(worst < 3, f"at most {worst:.2f} standard errors apart at {points} points ({where})")


FIGURE_1 = Experiment(
    name="ditto/figure1",
    title="Point estimation: error of a benign device against λ",
    source="Ditto, Figure 1 (ICML 2021)",
    cells=cells.cells_1,
    columns={
        "error": "squared error, 1/1000",
        "error_off": "off by, s.e.",
        "spread": "std over devices, 1/1000",
        "spread_off": "off by, s.e.",
    },
    claims=(
        Claim("the error falls and then rises with λ", _is_a_valley),
        Claim(
            "without adversaries the error is least at λ*", functools.partial(_minimum_is_the_theorems, case="clean")
        ),
        Claim("under attack the error is least at λₐ*", functools.partial(_minimum_is_the_theorems, case="attacked")),
        Claim("adversaries make the best λ smaller", _adversaries_lower_lambda),
        Claim("a device's error varies least at the best λ (Theorems 6 and 8)", _one_device_is_fairest_there, _FINE),
        Claim("the band over devices is narrowest near the best λ", _band_is_narrowest_nearby),
        Claim(
            "under attack the band is narrowest at a larger λ than Theorem 8 says",
            _band_under_attack_is_elsewhere,
            _FINE,
        ),
        Claim("simulation and closed forms agree", functools.partial(_agree, metrics=("error", "spread"))),
    ),
    digits=2,
    figure="holdfast.papers.ditto_theory_figures:draw_1",
)

# ----------------------------------------------------------------------------------------------------------- Figure 2


def _over(results: Results, case: str, method: str) -> Vector:
    return np.array([results.mean(cells.name_2(case, relatedness), method) for relatedness in cells.RELATEDNESS])


def _local_is_flat(results: Results) -> Verdict:
    apart = max(
        float(np.ptp(_over(results, case, "local")) / _over(results, case, "local").mean()) for case in cells.FIGURE_2
    )
    return Verdict(apart < 0.01, f"its errors are at most {apart:.2%} apart (1%)")


def _global_falls(results: Results) -> Verdict:
    curves = {case: _over(results, case, "global") for case in cells.FIGURE_2}
    said = (f"{case}: from {curve[0]:.0f} to {curve[-1]:.2f}" for case, curve in curves.items())
    return Verdict(all((np.diff(curve) < 0).all() for curve in curves.values()), "; ".join(said))


def _ditto_is_below_both(results: Results) -> Verdict:
    """In every cell under every seed, on the same draws."""
    margins = []
    for cell in results.names:
        for name in ("local", "global"):
            pairs = zip(results.values(cell, name), results.values(cell, "ditto"), strict=True)
            margins.append((min(other / ditto - 1 for other, ditto in pairs), f"{name} in {cell}"))
    closest, where = min(margins)
    return Verdict(closest > 0, f"the others' error is at least {closest:.1%} larger in all cells and seeds ({where})")


def _ditto_merges(results: Results) -> Verdict:
    """The gap to a method at the near end, where it should be small, and at the far end."""
    holds, said = True, []
    for name, near, far in (("local", 0, -1), ("global", -1, 0)):
        for case in cells.FIGURE_2:
            gaps = _over(results, case, name) / _over(results, case, "ditto") - 1
            steps = np.diff(gaps) if name == "local" else -np.diff(gaps)
            holds = holds and bool(gaps[near] < 0.1 and (steps > 0).all())
            said.append(f"{name}, {case}: {gaps[near]:.1%} there, {gaps[far]:.0%} at the other end")
    return Verdict(holds, "excess over Ditto of " + "; ".join(said) + " (below 10% there, growing from there on)")


FIGURE_2 = Experiment(
    name="ditto/figure2",
    title="Point estimation: error of a benign device against how related devices are",
    source="Ditto, Figure 2 (ICML 2021)",
    cells=cells.cells_2,
    columns={
        "local": "local, 1/1000",
        "local_off": "off by, s.e.",
        "ditto": "Ditto, 1/1000",
        "ditto_off": "off by, s.e.",
        "global": "global, 1/1000",
        "global_off": "off by, s.e.",
    },
    claims=(
        Claim("local models don't profit from relatedness", _local_is_flat),
        Claim("the global model's error falls with relatedness", _global_falls),
        Claim("Ditto is below local and global everywhere", _ditto_is_below_both),
        Claim("Ditto merges with local at the left and with global at the right", _ditto_merges),
        Claim("simulation and closed forms agree", functools.partial(_agree, metrics=cells.METHODS)),
    ),
    digits=2,
    figure="holdfast.papers.ditto_theory_figures:draw_2",
)

EXPERIMENTS = (FIGURE_1, FIGURE_2)
