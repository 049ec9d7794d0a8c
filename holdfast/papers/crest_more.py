"""CREST beyond its tables: where chosen mini-batches help and where they don't, and why.

``crest/where`` changes one circumstance at a time: normalisation, learning rate, r / m, budget, redundancy of the data,
and the half of training in which mini-batches are chosen. ``crest/gradients`` measures bias and variance of what is
trained on (Figures 2.1, 9.1 and 9.3), ``crest/difficulty`` how hard it is (Figure 2.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.crest import DEPENDS, POOLED, POOLED_BATCH_NORM, SMOKE, budget_cell
from holdfast.papers.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.results import Results

_CELLS = "holdfast.papers.coreset_cells"

#: What a circumstance changes about the training on pooled CIFAR-10, for all rows alike.
_CIRCUMSTANCES: Mapping[str, Mapping[str, Any]] = {
    "group norm": POOLED,
    "batch norm": POOLED_BATCH_NORM,
    "slower": {**POOLED, "learning_rate": 0.02},
    "faster": {**POOLED, "learning_rate": 0.15},
    "more steps": {**POOLED, "budget": 0.3},
    "copies": {**POOLED, "copies": 8},
    "r = 2m": POOLED,
    "r = 8m": POOLED,
}
_ALL_SEEDS = ("group norm", "batch norm")  # the others are asked less often
_SUBSETS = {"r = 2m": 256, "r = 8m": 1024}
_HALVES: Mapping[str, Mapping[str, Any]] = {
    "first half": {"method": "crest", "options": {"every_batch": True}, "then": "erm"},
    "second half": {"method": "erm", "then": "crest", "then_options": {"every_batch": True}},
}


def _rows(circumstance: str) -> dict[str, Mapping[str, Any]]:
    options = {"interval": 4, **({"subset": _SUBSETS[circumstance]} if circumstance in _SUBSETS else {})}
    rows: dict[str, Mapping[str, Any]] = {
        "random": {"method": "erm"},
        "crest": {"method": "crest", "options": options},
        "every batch": {"method": "crest", "options": {**options, "every_batch": True}},
    }
    if circumstance == "batch norm":
        weighted = {"interval": 4, "statistics": "weighted"}
        rows["crest, weighted"] = {"method": "crest", "options": weighted}
        rows["every batch, weighted"] = {"method": "crest", "options": {**weighted, "every_batch": True}}
    if circumstance == "group norm":
        rows |= {**_HALVES, "random, batch 500": {"method": "erm", "draws_per_step": 500}}
    return rows


def _where_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        options = {"batch_size": 32}
        small: dict[str, dict[str, Any]] = {
            "random": {"method": "erm"},
            "crest": {"method": "crest", "options": options},
        }
        return tuple(budget_cell("digits", row, SMOKE | changes) for row, changes in small.items())
    return tuple(
        budget_cell(circumstance, row, {**settings, **changes}, None if circumstance in _ALL_SEEDS else 2)
        for circumstance, settings in _CIRCUMSTANCES.items()
        for row, changes in _rows(circumstance).items()
    )


def _gains(results: Results, circumstance: str, row: str) -> list[float]:
    """Points over Random, by seed."""
    ours, theirs = (results.values(f"{circumstance}/{name}", "accuracy") for name in (row, "random"))
    return [mine - other for mine, other in zip(ours, theirs, strict=True)]


def _mean(gains: list[float]) -> float:
    return sum(gains) / len(gains)


def _said(gains: Mapping[str, list[float]]) -> str:
    return "; ".join(f"{name} {', '.join(f'{gain:+.2f}' for gain in values)}" for name, values in gains.items())


def _choosing_helps(results: Results) -> Verdict:
    """Choosing before every step is what CREST approximates, so this comes first."""
    gains = {"every batch": _gains(results, "group norm", "every batch")}
    return Verdict(min(gains["every batch"]) > 0, f"points over Random by seed: {_said(gains)}")


def _crest_helps(results: Results) -> Verdict:
    """Over the mean of the seeds, as its gain is a part of that of every batch."""
    gains = _gains(results, "group norm", "crest")
    return Verdict(_mean(gains) > 0, f"points over Random by seed: {_said({'crest': gains})}")


def _batch_norm_spoils_it(results: Results) -> Verdict:
    """Batch statistics of a mini-batch that is chosen to be unlike the others are off."""
    gains = {name: _gains(results, name, "every batch") for name in ("group norm", "batch norm")}
    holds = _mean(gains["batch norm"]) < _mean(gains["group norm"]) / 2
    return Verdict(holds, f"points over Random of every batch: {_said(gains)}")


def _larger_subsets_help(results: Results) -> Verdict:
    """A mini-batch stands for r examples, at most."""
    gains = {name: _gains(results, name, "every batch") for name in ("r = 2m", "group norm", "r = 8m")}
    holds = _mean(gains["r = 2m"]) < _mean(gains["group norm"])
    return Verdict(holds, f"points over Random of every batch: {_said(gains)}")


def _budget_shrinks_it(results: Results) -> Verdict:
    """Table 9.2: with twice the budget the gain is a quarter smaller."""
    gains = {name: _gains(results, name, "every batch") for name in ("group norm", "more steps")}
    holds = _mean(gains["more steps"]) < _mean(gains["group norm"])
    return Verdict(holds, f"points over Random of every batch: {_said(gains)}")


WHERE = Experiment(
    name="crest/where",
    title="where chosen mini-batches help",
    source="CREST, and circumstances that its chapter doesn't vary",
    cells=_where_cells,
    depends=DEPENDS,
    claims=(
        Claim("Mini-batches chosen before every step beat random ones in every seed", _choosing_helps, ("cpu",)),
        Claim("CREST beats random mini-batches on average", _crest_helps, ("cpu",)),
        Claim("Batch norm takes at least half of the gain away", _batch_norm_spoils_it, ("cpu",)),
        Claim("Subsets of 4m give more than those of 2m", _larger_subsets_help, ("cpu",)),
        Claim("The gain is smaller with a larger budget", _budget_shrinks_it, ("cpu",)),
    ),
    columns={"accuracy": "accuracy", "updates": "updates", "choosing": "seconds choosing"},
    digits=2,
    scales=("smoke", "cpu"),
)


def _gradient_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        settings = {**SMOKE, "budget": 0.1, "points": [10, 40], "subset": 128, "draws": 20}
        return (Cell("digits", f"{_CELLS}:gradients_of_choices", settings),)
    shared = {"budget": 0.1, "points": [50, 300, 700], "subset": 500, "draws": 60}
    return (
        Cell("group norm", f"{_CELLS}:gradients_of_choices", {**POOLED, **shared}),
        Cell("batch norm", f"{_CELLS}:gradients_of_choices", {**POOLED_BATCH_NORM, **shared}),
    )


def _at_points(results: Results, name: str) -> dict[str, float]:
    """A metric at every point of every cell."""
    return {
        f"{cell.name} at {metric.partition('/')[0]}": value.ours.mean
        for cell in results.cells
        for metric, value in cell.metrics.items()
        if metric.partition("/")[2] == name
    }


def _compared(results: Results, left: str, right: str, most: float) -> Verdict:
    numerators, denominators = _at_points(results, left), _at_points(results, right)
    quotients = {place: numerators[place] / denominators[place] for place in numerators}
    said = ", ".join(f"{value:.2f} ({place})" for place, value in quotients.items())
    return Verdict(max(quotients.values()) <= most, f"{said} (at most {most:g})")


GRADIENTS = Experiment(
    name="crest/gradients",
    title="bias and variance of the gradients that are trained on",
    source="CREST, Figures 2.1, 9.1 and 9.3",
    cells=_gradient_cells,
    depends=DEPENDS,
    claims=(
        Claim(
            "Coresets have at most 0.65 of the variance of random mini-batches of their size",
            lambda results: _compared(results, "crest variance", "random m variance", 0.65),
            ("cpu",),
        ),
        Claim(
            "Random mini-batches of the subset's size have less variance still",
            lambda results: _compared(results, "random r variance", "crest variance", 1.0),
            ("cpu",),
        ),
        Claim(
            "Coresets have less bias than mini-batches of one big coreset",
            lambda results: _compared(results, "crest bias", "craig bias", 1.0),
            ("cpu",),
        ),
        Claim(
            "Five coresets together are nearer to the gradient than one",
            lambda results: _compared(results, "union error", "crest error", 1.0),
        ),
        Claim(
            "Unit weights put a coreset 1.5 times as far from its subset",
            lambda results: _compared(results, "epsilon greedy", "epsilon unit weights", 1 / 1.5),
            ("cpu",),
        ),
        Claim(
            "Weights of others put it 1.5 times as far",
            lambda results: _compared(results, "epsilon greedy", "epsilon shuffled", 1 / 1.5),
        ),
        Claim(
            "Random picks with the right weights put it 1.15 times as far",
            lambda results: _compared(results, "epsilon greedy", "epsilon random picks", 1 / 1.15),
        ),
    ),
    seeds=(0,),
    scales=("smoke", "cpu"),
    digits=3,
)


def _difficulty_cells(scale: Scale) -> tuple[Cell, ...]:
    small = {"batch_size": 32, "window": 1, "sightings": 1}
    rows = {"random": None, "crest": {}, "no dropping": {"drop_learned": False}}
    if scale == "smoke":
        methods = {row: None if options is None else {**small, **options} for row, options in rows.items()}
        return (Cell("digits", f"{_CELLS}:difficulty_of_choices", {**SMOKE, "budget": 0.2, "methods": methods}),)
    return (Cell("pooled", f"{_CELLS}:difficulty_of_choices", {**POOLED, "budget": 0.4, "methods": rows}),)


def _gets_harder(results: Results) -> Verdict:
    """Figure 2.5: the mean forgetting score of what CREST trains on rises; that of random draws doesn't."""
    said, holds = [], True
    for cell in results.cells:
        rises = {
            row: results.mean(cell.name, f"{row}/third 3") - results.mean(cell.name, f"{row}/third 1")
            for row in ("crest", "random")
        }
        holds &= rises["crest"] > 0 and abs(rises["random"]) < rises["crest"] / 2
        said.append(f"from the first to the last third CREST {rises['crest']:+.3f}, Random {rises['random']:+.3f}")
    return Verdict(holds, "; ".join(said))


DIFFICULTY = Experiment(
    name="crest/difficulty",
    title="how hard the examples are that are trained on",
    source="CREST, Figure 2.5",
    cells=_difficulty_cells,
    depends=DEPENDS,
    claims=(Claim("CREST trains on harder and harder examples, Random doesn't", _gets_harder, ("cpu",)),),
    scales=("smoke", "cpu"),
    digits=3,
)

EXPERIMENTS = (WHERE, GRADIENTS, DIFFICULTY)
