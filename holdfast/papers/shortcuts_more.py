"""Personalized FL with spurious features: the studies beside its tables, and what composes with it.

The same small federation as Table 2's; cells that are the same are computed once.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Printed, Scale, Verdict
from holdfast.papers.engine.results import Results
from holdfast.papers.shortcuts import CPU, TABLE2, listed, mean, small_setting, with_epochs

_FUNCTION = "personalization"
_GAUSSIAN = "personalization-gaussian"
_SMALL: tuple[Scale, ...] = ("smoke", "cpu")

#: Shares of counterexamples and how many times as often they are drawn: their mass is the same.
DIVERSITY = ((0.02, 50.0), (0.025, 40.0), (0.033, 30.0), (0.05, 20.0), (0.1, 10.0))


def _epochs(scale: Scale) -> dict[str, int]:
    epochs = 5 if scale == "cpu" else 1
    return {"epochs": epochs, "checkpoints": epochs}


def _methods(scale: Scale, *rows: str) -> dict[str, Any]:
    return with_epochs(rows, _epochs(scale)["epochs"])


# -------------------------------------------------------------------------------------------------- Figure 2


def _diversity_cells(scale: Scale) -> tuple[Cell, ...]:
    methods = {
        f"{share:g}": {"name": "uw", "counterexamples": share, "options": {"factor": factor, **_epochs(scale)}}
        for share, factor in DIVERSITY
    }
    methods |= _methods(scale, "ft")
    return (Cell("mnist-small/all", _FUNCTION, {**small_setting(scale), "methods": methods}),)


def _diversity_helps(results: Results) -> Verdict:
    gaps = [mean(results, f"{share:g}/disparity") for share, _ in DIVERSITY]
    holds = all(few > more for few, more in itertools.pairwise(gaps))
    return Verdict(holds, f"disparity {listed(gaps)} for shares {listed((share for share, _ in DIVERSITY), 3)}")


def _diversity_ends(results: Results) -> Verdict:
    gaps = [mean(results, f"{share:g}/disparity") for share, _ in (DIVERSITY[0], DIVERSITY[-1])]
    return Verdict(gaps[1] < gaps[0], f"{gaps[0]:.3f} with the fewest, {gaps[1]:.3f} with the most")


FIGURE2 = Experiment(
    name="spurious-personalization/figure2",
    title="The more diverse the counterexamples at the same mass, the smaller the disparity",
    source="Personalized FL with spurious features, Figure 2; on the small federation",
    cells=_diversity_cells,
    grid=Grid(
        {"ft": "none", **{f"{share:g}": f"{share:.1%}, {factor:g} times" for share, factor in DIVERSITY}},
        {"mnist-small": "MNIST, small"},
        "elsewhere",
        "disparity",
        "accuracy elsewhere/what is lost by leaving home",
    ),
    claims=(
        Claim("each step to more diverse counterexamples lowers the disparity", _diversity_helps, CPU),
        Claim("the most diverse have less disparity than the least diverse", _diversity_ends, CPU),
    ),
    scales=_SMALL,
    digits=3,
)


# -------------------------------------------------------------------------------------------------- Figures 1 and 3


FIGURE1 = Experiment(
    name="spurious-personalization/figure1",
    title="Accuracy at home and elsewhere along fine-tuning, and what transfers",
    source="Personalized FL with spurious features, Figures 1 and 3; on the small federation",
    cells=TABLE2.cells,
    grid=Grid(
        {"ft": "FT", "flipped": "flipped labels", "ours-1-1": "ours, (1, 1)"},
        {"mnist-small": "MNIST, small"},
        "at1_disparity",
        "disparity",
        "disparity at the first checkpoint/at the end",
    ),
    scales=_SMALL,
    digits=3,
    figure="holdfast.papers.shortcut_figures:draw_1",
)


# -------------------------------------------------------------------------------------------------- robustness


def _transfers_more(results: Results) -> Verdict:
    plain, ours = (mean(results, f"{row}/transfer") for row in ("ft", "ours"))
    return Verdict(ours > plain, f"{ours:.3f} of what fools the shared model fools ours, {plain:.3f} fine-tuning")


ROBUSTNESS = Experiment(
    name="spurious-personalization/robustness",
    title="Attacks that transfer from the shared model, and attacks on the personal model itself",
    source="Personalized FL with spurious features, Section 6.5; MNIST, small, is not in the document",
    cells=TABLE2.cells,
    printed={
        "mnist/all": {
            "ft/transfer": Printed(0.561),
            "ft/direct": Printed(0.478),
            "ours/transfer": Printed(0.682),
            "ours/direct": Printed(0.501),
        }
    },
    grid=Grid(
        {"ft": "FT", "ours": "ours, coefficients tuned", "ours-1-1": "ours, (1, 1)"},
        {"mnist": "MNIST", "mnist-small": "MNIST, small"},
        "transfer",
        "direct",
        "success of transferred attacks/of direct ones",
    ),
    claims=(Claim("ours pays with transferred attacks", _transfers_more, ("cpu", "paper")),),
    digits=3,
)


# -------------------------------------------------------------------------------------------------- imperfect


def _imperfect_cells(scale: Scale) -> tuple[Cell, ...]:
    setting = small_setting(scale)
    methods = _methods(scale, "ft", "ours-1-1")
    return tuple(
        Cell(name, _FUNCTION, {**setting, "data": {**setting["data"], "share": share}, "methods": methods})
        for name, share in (("even/all", 0.5), ("uneven/all", 0.7))
    )


def _degrades_gently(results: Results) -> Verdict:
    even, uneven = (results.mean(f"{name}/all", "ours-1-1/disparity") for name in ("even", "uneven"))
    plain = results.mean("uneven/all", "ft/disparity")
    shared = [
        results.mean(f"{name}/all", "everybody/accuracy") - results.mean(f"{name}/all", "everybody/elsewhere")
        for name in ("even", "uneven")
    ]
    return Verdict(
        uneven < 0.6 * plain,
        f"shared models with disparity {listed(shared)}: ours {even:.3f} and {uneven:.3f}, fine-tuning {plain:.3f}",
    )


IMPERFECT = Experiment(
    name="spurious-personalization/imperfect",
    title="A shared model that is biased itself",
    source="Personalized FL with spurious features, Section 6.5; on the small federation",
    cells=_imperfect_cells,
    grid=Grid(
        {"global": "Global", "ft": "FT", "ours-1-1": "ours, (1, 1)"},
        {"even": "clients in halves", "uneven": "70 % in one environment"},
        "worst",
        "disparity",
        "the lower accuracy of the two environments/what is lost by leaving home",
    ),
    claims=(Claim("with a biased shared model ours still has far less disparity", _degrades_gently, CPU),),
    scales=_SMALL,
    digits=3,
)


# -------------------------------------------------------------------------------------------------- composition


def _composed_cells(scale: Scale) -> tuple[Cell, ...]:
    setting = small_setting(scale)
    methods = _methods(scale, "ft", "ours-1-1")
    spare = {"policy": "spare", "options": {"infer_epoch": 1}, "epochs": _epochs(scale)["epochs"] + 1}
    attack = {"name": "a1", "ratio": 0.2}
    return (
        Cell("clean/all", _FUNCTION, {**setting, "methods": {**methods, "spare": spare}}),
        Cell("a1-mean/all", _FUNCTION, {**setting, "methods": methods, "threat": attack}),
        Cell(
            "a1-multi-krum/all",
            _FUNCTION,
            {**setting, "methods": methods, "threat": attack, "aggregator": "multi-krum"},
        ),
    )


def _robust_and_unbiased(results: Results) -> Verdict:
    ours, plain = (results.mean("a1-multi-krum/all", f"{row}/worst") for row in ("ours-1-1", "ft"))
    undefended = results.mean("a1-mean/all", "ours-1-1/worst")
    return Verdict(
        ours > plain,
        f"worst environment under attack: {ours:.3f} with ours on multi-Krum, {plain:.3f} with fine-tuning on it, "
        f"{undefended:.3f} with ours on the mean",
    )


COMPOSITION = Experiment(
    name="spurious-personalization/composition",
    title="On a robustly aggregated model under attack, and SPARE inside clients",
    source="No document has it; on the small federation, A1 by 20 % of the clients",
    cells=_composed_cells,
    grid=Grid(
        {"global": "Global", "ft": "FT", "ours-1-1": "ours, (1, 1)", "spare": "SPARE inside clients"},
        {"clean": "clean", "a1-mean": "A1 20 %, mean", "a1-multi-krum": "A1 20 %, multi-Krum"},
        "worst",
        "disparity",
        "the lower accuracy of the two environments/what is lost by leaving home",
    ),
    claims=(Claim("a robust shared model and ours on top go together", _robust_and_unbiased, CPU),),
    scales=_SMALL,
    digits=3,
)


# -------------------------------------------------------------------------------------------------- Gaussian simulation


COEFFICIENTS = ((0, 0), (0.1, 0), (1, 0), (10, 0), (0, 0.01), (0, 0.1), (0, 1), (1, 0.1), (10, 0.1), (1, 1))


def _gaussian_cells(scale: Scale) -> tuple[Cell, ...]:
    clients = 20 if scale != "smoke" else 4
    personal = [
        Cell(f"personal/{a:g}-{b:g}", _GAUSSIAN, {"adversarial": a, "weights": b, "clients": clients})
        for a, b in COEFFICIENTS
    ]
    shared = [Cell(f"shared/{case}", _GAUSSIAN, {"case": case, "rounds": 200}) for case in "ab"]
    return (*shared, *personal)


def _shared_ignores(results: Results) -> Verdict:
    found = {case: np.array(results.values(f"shared/{case}", "spurious")) for case in "ab"}
    real = np.array(results.values("shared/a", "real"))
    holds = (
        bool((abs(found["a"]) < 0.15).all())
        and bool(((real >= 1.85) & (real <= 2.1)).all())
        and bool(((found["b"] >= 0.7) & (found["b"] <= 0.95)).all())
    )
    return Verdict(holds, f"w_s {listed(found['a'])} where it vanishes, {listed(found['b'])} where it weakens")


def _ordered(results: Results) -> Verdict:
    adversarial = [results.mean(f"personal/{a:g}-0", "spurious") for a in (0, 0.1, 1, 10)]
    weights = [results.mean(f"personal/0-{b:g}", "spurious") for b in (0, 0.01, 0.1, 1)]
    holds = all(x > y for path in (adversarial, weights) for x, y in itertools.pairwise(path)) and adversarial[0] > 1.2
    return Verdict(holds, f"|w_s| {listed(adversarial)} by predictions, {listed(weights)} by weights")


def _calmest(results: Results) -> Verdict:
    both, alone = (results.mean(f"personal/{name}", "wobble") for name in ("10-0.1", "0-1"))
    gap, plain = (results.mean(f"personal/{name}", "disparity") for name in ("10-0.1", "0-0"))
    end = results.mean("personal/10-0.1", "spurious")
    holds = end < 0.08 and both < alone / 4 and gap < 0.03 and plain > 0.25
    return Verdict(
        holds, f"|w_s| {end:.3f}, wobble {both:.4f} against {alone:.4f}; disparity {gap:.3f} against {plain:.3f}"
    )


def _both_is_not_always_calm(results: Results) -> Verdict:
    equal, alone = (results.mean(f"personal/{name}", "wobble") for name in ("1-1", "10-0"))
    return Verdict(equal < alone, f"wobble {equal:.4f} with (1, 1), {alone:.4f} with predictions alone")


FIGURE8 = Experiment(
    name="spurious-personalization/figure8",
    title="Gaussian environments: what a linear model with two weights learns, shared and personal",
    source="Personalized FL with spurious features, Figures 7 and 8",
    cells=_gaussian_cells,
    columns={"spurious": "|w_s|", "wobble": "its spread over steps", "disparity": "accuracy lost elsewhere"},
    claims=(
        Claim("FedAvg ignores what changes from client to client", _shared_ignores, ("cpu", "paper")),
        Claim("the stronger a term, the less is picked up", _ordered, ("cpu", "paper")),
        Claim("both together, predictions strong and weights weak, hold still", _calmest, ("cpu", "paper")),
        Claim("both together fluctuate least whatever the coefficients", _both_is_not_always_calm, ("cpu", "paper")),
    ),
    digits=3,
    figure="holdfast.papers.shortcut_figures:draw_8",
)

EXPERIMENTS = (FIGURE1, FIGURE2, ROBUSTNESS, IMPERFECT, COMPOSITION, FIGURE8)
