"""Ditto (Li, Hu, Beirami and Smith, ICML 2021): Figures 1 and 2, the analysis of point estimation.

`FIGURE_1` has the error of a benign client against λ, without and with malicious clients; `FIGURE_2` has it against the
relatedness 1/τ for local models, Ditto at its best λ, and a global model. Every cell holds a Monte-Carlo measurement
beside the closed form, with which it shares no formula.

The theorems on fairness treat clients as independent. Under attack the spread over clients is least at a larger λ than
they say, and claims of Figure 1 say so.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from holdfast.papers.engine.evidence import every, half_width
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results

_FINE: tuple[Scale, ...] = ("cpu", "paper")
TRIALS: Mapping[Scale, int] = {"smoke": 20_000, "cpu": 70_000, "paper": 70_000}

#: Fields of `holdfast.theory.ditto.Setting` that both figures have.
_POINT = {"d": 1, "beta": None}
#: The two panels of Figure 1, and each λ that is measured besides 0 and infinity.
PANELS_1: Mapping[str, Mapping[str, Any]] = {
    "clean": {"K": 8, "sigma": 0.8, "n": 30, "tau": 0.1, "K_a": 0, "tau_a": None, **_POINT},
    "attacked": {"K": 16, "sigma": 0.8, "n": 30, "tau": 0.1, "K_a": 8, "tau_a": 0.5, **_POINT},
}
LAMBDAS = tuple(10 ** (power / 4) for power in range(-8, 9))
#: λ of Theorems 5 to 8 in the panels of Figure 1.
THEOREM: Mapping[str, float] = {"clean": 32 / 15, "attacked": 32 / 27}
#: Where the spread over clients is least under attack, their correlation through the global model considered.
FAIREST_UNDER_ATTACK = 1.39622

#: The two panels of Figure 2 but for τ, and each 1/τ that is measured.
PANELS_2: Mapping[str, Mapping[str, Any]] = {
    "clean": {"K": 20, "sigma": 1.0, "n": 20, "K_a": 0, "tau_a": None, **_POINT},
    "attacked": {"K": 10, "sigma": 0.5, "n": 10, "K_a": 3, "tau_a": 0.1, **_POINT},
}
RELATEDNESS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)
METHODS = ("local", "ditto", "global")


def name_1(case: str, lambda_: float) -> str:
    """The cell of a λ."""
    return f"{case}/{lambda_:.3g}"


def name_2(case: str, relatedness: float) -> str:
    """The cell of a relatedness."""
    return f"{case}/{relatedness:g}"


def setting_2(case: str, relatedness: float) -> dict[str, Any]:
    """A panel of Figure 2 at a relatedness."""
    return {**PANELS_2[case], "tau": 1 / relatedness}


def _cell_1(name: str, case: str, lambda_: float, trials: int) -> Cell:
    number = lambda_ if math.isfinite(lambda_) else "inf"
    return Cell(name, "ditto-lambda", {"setting": PANELS_1[case], "lambda": number, "trials": trials})


def _cell_2(name: str, case: str, relatedness: float, trials: int) -> Cell:
    return Cell(name, "ditto-relatedness", {"setting": setting_2(case, relatedness), "trials": trials})


def _cells_1(scale: Scale) -> tuple[Cell, ...]:
    return tuple(
        _cell_1(name_1(case, lambda_), case, lambda_, TRIALS[scale])
        for case in PANELS_1
        for lambda_ in (0.0, *LAMBDAS, math.inf)
    )


def _cells_2(scale: Scale) -> tuple[Cell, ...]:
    return tuple(
        _cell_2(name_2(case, relatedness), case, relatedness, TRIALS[scale])
        for case in PANELS_2
        for relatedness in RELATEDNESS
    )


# ----------------------------------------------------------------------------------------------------------- Figure 1


def _curves(results: Results, case: str, metric: str) -> list[list[float]]:
    """A metric over the finite λ above zero, under each seed; all λ of a seed see the same draws."""
    by_lambda = [results.values(name_1(case, lambda_), metric) for lambda_ in LAMBDAS]
    return [list(curve) for curve in zip(*by_lambda, strict=True)]


def _lowest(curve: Sequence[float]) -> float:
    """The λ at which a curve is least: of the parabola through its lowest points in λ/(1 + λ), where V is one."""
    place = min(max(curve.index(min(curve)), 1), len(curve) - 2)
    left, here, right = (lambda_ / (1 + lambda_) for lambda_ in LAMBDAS[place - 1 : place + 2])
    falls = (curve[place] - curve[place - 1]) / (here - left)
    rises = (curve[place + 1] - curve[place]) / (right - here)
    bend = (rises - falls) / (right - left)
    share = (left + here) / 2 - falls / (2 * bend)
    share = min(max(share, 1e-6), 1 - 1e-6)
    return share / (1 - share)


def _minima(results: Results, case: str, metric: str) -> list[float]:
    """Where the curve of each seed is least."""
    return [_lowest(curve) for curve in _curves(results, case, metric)]


def _is_a_valley(results: Results) -> Verdict:
    holds, evidence = True, []
    for case in PANELS_1:
        values = [statistics.fmean(column) for column in zip(*_curves(results, case, "error"), strict=True)]
        bottom = values.index(min(values))
        steps = [after - before for before, after in pairwise(values)]
        holds = holds and all(step < 0 for step in steps[:bottom]) and all(step > 0 for step in steps[bottom:])
        holds = holds and 0 < bottom < len(steps)
        ends = results.mean(f"{case}/0", "error"), results.mean(f"{case}/inf", "error")
        evidence.append(f"{case}: {ends[0]:.2f} local, {values[bottom]:.2f} at best, {ends[1]:.2f} global")
    return Verdict(holds, "; ".join(evidence))


def _near(minima: Sequence[float], wanted: float, what: str) -> Verdict:
    """Whether a minimum is where the theorem has it, within 5 %: as near as the simulation can tell."""
    ratios = [each / wanted for each in minima]
    mean, half = statistics.fmean(ratios), half_width(ratios)
    evidence = f"{what} lowest at {mean * wanted:.3f} ± {half * wanted:.3f}, the theorem says {wanted:.3f} (within 5 %)"
    inside = mean - half > 0.95 and mean + half < 1.05
    outside = mean + half < 0.95 or mean - half > 1.05
    return Verdict(True if inside else False if outside or len(minima) == 1 else None, evidence)


def _minimum_is_the_theorems(results: Results, case: str, metric: str, what: str) -> Verdict:
    return _near(_minima(results, case, metric), THEOREM[case], what)


def _adversaries_lower_lambda(results: Results) -> Verdict:
    clean, attacked = (_minima(results, case, "error") for case in PANELS_1)
    pairs = list(zip(attacked, clean, strict=True))
    evidence = f"lowest at {statistics.fmean(attacked):.2f} under attack, at {statistics.fmean(clean):.2f} without"
    return Verdict(all(lower < higher for lower, higher in pairs), f"{evidence}; smaller under all {len(pairs)} seeds")


def _one_device_is_fairest_there(results: Results) -> Verdict:
    return every([_minimum_is_the_theorems(results, case, "device_spread", case) for case in PANELS_1])


def _band_under_attack_is_elsewhere(results: Results) -> Verdict:
    minima = _minima(results, "attacked", "spread")
    mean, half = statistics.fmean(minima), half_width(minima)
    evidence = f"narrowest at {mean:.3f} ± {half:.3f}; {FAIREST_UNDER_ATTACK:.3f} with the clients' correlation"
    return Verdict(
        abs(mean / FAIREST_UNDER_ATTACK - 1) < 0.05 and mean - half > 1.1 * THEOREM["attacked"],
        f"{evidence}, {THEOREM['attacked']:.3f} without (within 5 % of the first, 10 % above the second)",
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


_INDEPENDENT = (
    "The document: Theorem 8 treats clients as independent, but all lean on one global model; with their correlation "
    "the spread over clients is least at 1.396."
)

FIGURE_1 = Experiment(
    name="ditto/figure1",
    title="Point estimation: error of a benign client against λ",
    source="Ditto, Figure 1 (ICML 2021)",
    cells=_cells_1,
    golden=(
        _cell_1("golden/lambda", "attacked", 1.0, 12_000),
        _cell_1("golden/lambda-infinite", "clean", math.inf, 12_000),
    ),
    columns={
        "error": "squared error, 1/1000",
        "error_off": "off by, s.e.",
        "spread": "std over clients, 1/1000",
        "spread_off": "off by, s.e.",
    },
    claims=(
        Claim("the error falls and then rises with λ", _is_a_valley),
        Claim(
            "without adversaries the error is least at λ*",
            functools.partial(_minimum_is_the_theorems, case="clean", metric="error", what="error"),
        ),
        Claim(
            "under attack the error is least at λₐ*",
            functools.partial(_minimum_is_the_theorems, case="attacked", metric="error", what="error"),
        ),
        Claim("adversaries make the best λ smaller", _adversaries_lower_lambda),
        Claim("a client's error varies least at the best λ (Theorems 6 and 8)", _one_device_is_fairest_there, _FINE),
        Claim(
            "without adversaries the same λ has the smallest deviation over clients",
            functools.partial(_minimum_is_the_theorems, case="clean", metric="spread", what="deviation"),
            _FINE,
        ),
        Claim(
            "under attack the same λ has the smallest deviation over clients",
            functools.partial(_minimum_is_the_theorems, case="attacked", metric="spread", what="deviation"),
            _FINE,
            why=_INDEPENDENT,
        ),
        Claim(
            "under attack the deviation over clients is smallest at a larger λ than Theorem 8 says",
            _band_under_attack_is_elsewhere,
            _FINE,
            ours=True,
        ),
        Claim("simulation and closed forms agree", functools.partial(_agree, metrics=("error", "spread")), ours=True),
    ),
    digits=2,
    figure="holdfast.papers.ditto.theory_figures:draw_1",
)

# ----------------------------------------------------------------------------------------------------------- Figure 2


def _over(results: Results, case: str, method: str) -> list[float]:
    return [results.mean(name_2(case, relatedness), method) for relatedness in RELATEDNESS]


def _local_is_flat(results: Results) -> Verdict:
    curves = [_over(results, case, "local") for case in PANELS_2]
    apart = max((max(curve) - min(curve)) / statistics.fmean(curve) for curve in curves)
    return Verdict(apart < 0.01, f"its errors are at most {apart:.2%} apart (1 %)")


def _global_falls(results: Results) -> Verdict:
    curves = {case: _over(results, case, "global") for case in PANELS_2}
    falls_from = (f"{case}: from {curve[0]:.0f} to {curve[-1]:.2f}" for case, curve in curves.items())
    falls = all(after < before for curve in curves.values() for before, after in pairwise(curve))
    return Verdict(falls, "; ".join(falls_from))


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
    holds, evidence = True, []
    for name, near, far in (("local", 0, -1), ("global", -1, 0)):
        for case in PANELS_2:
            pairs = zip(_over(results, case, name), _over(results, case, "ditto"), strict=True)
            gaps = [other / ditto - 1 for other, ditto in pairs]
            grows = all(before < after for before, after in pairwise(gaps if name == "local" else gaps[::-1]))
            holds = holds and grows and gaps[near] < 0.1
            evidence.append(f"{name}, {case}: {gaps[near]:.1%} there, {gaps[far]:.0%} at the other end")
    return Verdict(holds, "excess over Ditto of " + "; ".join(evidence) + " (below 10 % there, growing from there on)")


FIGURE_2 = Experiment(
    name="ditto/figure2",
    title="Point estimation: error of a benign client against how related clients are",
    source="Ditto, Figure 2 (ICML 2021)",
    cells=_cells_2,
    golden=(_cell_2("golden/relatedness", "attacked", 5.0, 12_000),),
    columns={
        "local": "local, 1/1000",
        "local_off": "off by, s.e.",
        "ditto": "Ditto, 1/1000",
        "ditto_off": "off by, s.e.",
        "global": "global, 1/1000",
        "global_off": "off by, s.e.",
    },
    claims=(
        Claim("local models don't profit from relatedness", _local_is_flat, _FINE),
        Claim("the global model's error falls with relatedness", _global_falls),
        Claim("Ditto is below local and global everywhere", _ditto_is_below_both),
        Claim("λ* grows with relatedness: Ditto goes from the local models to the global one", _ditto_merges),
        Claim("simulation and closed forms agree", functools.partial(_agree, metrics=METHODS), ours=True),
    ),
    digits=2,
    figure="holdfast.papers.ditto.theory_figures:draw_2",
)

EXPERIMENTS = (FIGURE_1, FIGURE_2)
