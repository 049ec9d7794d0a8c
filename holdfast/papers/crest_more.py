"""CREST beyond its tables: where chosen mini-batches help and where they don't, and why.

``crest/where`` changes one circumstance at a time: normalisation, learning rate, r / m, budget, redundancy of the data,
and the half of training in which mini-batches are chosen. ``crest/budgets`` is a long training on easy data, in which
intervals grow and learned examples leave. ``crest/difficulty`` measures how hard the examples are that are trained on
(Figure 2.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.crest import POOLED, POOLED_BATCH_NORM, SMOKE, budget_cell, columns_of
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results

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


def _rows(circumstance: str, settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
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
        frozen = {"interval": 4, "statistics": "frozen", "warmup": 12}
        whole = {"subset": settings["batch_size"], "by_class": False, "drop_learned": False}  # nothing left to choose
        rows["random, frozen"] = {"method": "crest", "options": {**frozen, **whole, "every_batch": True}}
        rows["crest, frozen"] = {"method": "crest", "options": frozen}
        rows["every batch, frozen"] = {"method": "crest", "options": {**frozen, "every_batch": True}}
    if circumstance == "group norm":
        rows |= {**_HALVES, "random, batch 500": {"method": "erm", "draws_per_step": 500}}
        rows["crest, cached view"] = {"method": "crest", "options": {**options, "cached_view": True}}
    return rows


def _where_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        small = {"random": "erm", "crest": "crest"}
        return tuple(budget_cell("digits", row, {**SMOKE, "method": method}) for row, method in small.items())
    return tuple(
        budget_cell(circumstance, row, {**settings, **changes}, None if circumstance in _ALL_SEEDS else 2)
        for circumstance, settings in _CIRCUMSTANCES.items()
        for row, changes in _rows(circumstance, settings).items()
    )


def _gains(results: Results, circumstance: str, row: str) -> list[float]:
    """Points over Random, by seed."""
    ours, theirs = (results.values(f"{circumstance}/{name}", "accuracy") for name in (row, "random"))
    return [mine - other for mine, other in zip(ours, theirs, strict=True)]


def _shared(gains: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Only the seeds that all have."""
    return {name: values[: min(map(len, gains.values()))] for name, values in gains.items()}


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
    gains = _shared({name: _gains(results, name, "every batch") for name in ("r = 2m", "group norm", "r = 8m")})
    holds = _mean(gains["r = 2m"]) < _mean(gains["group norm"])
    return Verdict(holds, f"points over Random of every batch: {_said(gains)}")


def _budget_shrinks_it(results: Results) -> Verdict:
    """Table 9.2: with twice the budget the gain is a quarter smaller."""
    gains = _shared({name: _gains(results, name, "every batch") for name in ("group norm", "more steps")})
    holds = _mean(gains["more steps"]) < _mean(gains["group norm"])
    return Verdict(holds, f"points over Random of every batch: {_said(gains)}")


WHERE = Experiment(
    name="crest/where",
    title="where chosen mini-batches help",
    source="CREST, and circumstances that its chapter doesn't vary",
    cells=_where_cells,
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


#: MNIST is learned in a few epochs of a hundred, so there is much to drop.
_EASY: dict[str, Any] = {
    **SMOKE,
    "data": {"name": "mnist", "validation": 48_000},
    "full_epochs": 100,
    "batch_size": 128,
}
_BUDGETS = (0.05, 0.1, 0.2, 0.4)


def _budget_cells(scale: Scale) -> tuple[Cell, ...]:
    settings = SMOKE if scale == "smoke" else _EASY
    cells = list[Cell]()
    for budget in _BUDGETS[-2:] if scale == "smoke" else _BUDGETS:
        window = max(1, round(budget * settings["full_epochs"]))
        rows: dict[str, dict[str, Any]] = {
            "random": {"method": "erm"},
            "crest": {"method": "crest", "options": {"window": window}},
        }
        if budget == _BUDGETS[-1]:
            rows["no dropping"] = {"method": "crest", "options": {"drop_learned": False}}
        cells += [
            budget_cell(f"{budget:.0%}", row, {**settings, **changes, "budget": budget})
            for row, changes in rows.items()
        ]
    return tuple(cells)


def _budget_gains(results: Results) -> dict[str, float]:
    return {budget: _mean(_gains(results, budget, "crest")) for budget in columns_of(results)}


def _gap_closes(results: Results) -> Verdict:
    """Table 9.2: the more steps there are, the less it matters what they are made on."""
    gains = _budget_gains(results)
    first, *_, last = gains.values()
    return Verdict(first > last, "points over Random: " + ", ".join(f"{b} {g:+.2f}" for b, g in gains.items()))


def _learned_leave(results: Results) -> Verdict:
    """Of easy data, with time enough, at least three tenths."""
    left = {budget: 100 * results.mean(f"{budget}/crest", "pool") for budget in columns_of(results)}
    return Verdict(list(left.values())[-1] < 70, "percent left: " + ", ".join(f"{b} {p:.0f}" for b, p in left.items()))


def _intervals_grow(results: Results) -> Verdict:
    """T1 = h |H_0| / |H|, from 1 at the start."""
    ends = {budget: results.mean(f"{budget}/crest", "interval") for budget in columns_of(results)}
    said = ", ".join(f"{budget} {steps:.0f}" for budget, steps in ends.items())
    return Verdict(list(ends.values())[-1] > 1, f"steps between checks in the end: {said}")


BUDGETS = Experiment(
    name="crest/budgets",
    title="easy data and time enough: intervals, what is dropped, and what is gained",
    source="CREST, Table 9.2 and Figure 2.5",
    cells=_budget_cells,
    claims=(
        Claim("The gain over Random shrinks as the budget grows", _gap_closes, ("cpu",)),
        Claim("Less than 70 % of the examples are left with the largest budget", _learned_leave, ("cpu",)),
        Claim("Intervals grow", _intervals_grow, ("cpu",)),
    ),
    columns={"accuracy": "accuracy", "updates": "updates", "interval": "last interval", "pool": "share left"},
    digits=2,
    scales=("smoke", "cpu"),
)


def _difficulty_cells(scale: Scale) -> tuple[Cell, ...]:
    small = {"window": 1, "sightings": 1}
    rows = {"random": None, "crest": {}, "no dropping": {"drop_learned": False}}
    if scale == "smoke":
        methods = {row: None if options is None else {**small, **options} for row, options in rows.items()}
        return (Cell("digits", "crest-difficulty", {**SMOKE, "budget": 0.2, "methods": methods}),)
    return (Cell("pooled", "crest-difficulty", {**POOLED, "budget": 0.4, "methods": rows}),)


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
    claims=(Claim("CREST trains on harder and harder examples, Random doesn't", _gets_harder, ("cpu",)),),
    scales=("smoke", "cpu"),
    digits=3,
)

EXPERIMENTS = (WHERE, BUDGETS, DIFFICULTY)
