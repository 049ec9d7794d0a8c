"""Ditto under client-level differential privacy (appendix E.1): the shared model takes noise, personal ones take none.

A mean of clipped updates with noise is one more way to train the shared model, and Ditto's personal models see other
clients through that model only. So what privacy costs the shared model, personal models get back from their own data.
Here the same federation runs at several epsilons, with clients drawn one by one and everything accounted for, beside
local training, which needs no privacy at all: a personal model that does no better has nothing of the federation.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from holdfast.papers.ditto import claims, golden
from holdfast.papers.ditto.columns import KIND
from holdfast.papers.engine.evidence import every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Scale, Verdict
from holdfast.papers.engine.results import Results

#: Columns, from no noise to the most, with the epsilon that the whole run spends; delta is 500^(-1.1).
EPSILONS: dict[str, float | None] = {"none": None, "8": 8.0, "2": 2.0, "1": 1.0}
_CLIP = 0.3
_LAMBDAS = (0.1, 1.0)
_DITTO = "ditto-1"
ROWS = {
    "global": "shared",
    **{f"ditto-{each:g}": f"Ditto, λ={each:g}" for each in _LAMBDAS},
    "finetuning": "fine-tuning",
    "local": "local",
}
_PRIVATE = [column for column, epsilon in EPSILONS.items() if epsilon is not None]

_BASE: dict[str, Any] = {
    "data": {"name": "fashion-mnist"},
    "data_by_seed": False,
    "model": "softmax",
    "rounds": {
        "rounds": 30,
        "cohort": 100,
        "batch_size": 16,
        "local_epochs": 1,
        "learning_rate": 0.05,
        "sampling": "poisson",
        "evaluate_every": 0,
        "executor": "batched",
        "chunk": 25,
    },
    "personalize": [
        {"name": "local"},
        *({"name": "ditto", "lambda_": each} for each in _LAMBDAS),
        {"name": "finetuning", "epochs": 2},
    ],
    "rows": {row: [row] for row in ROWS},
}


def _cells(scale: Scale) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            f"{column}/plain",
            KIND,
            _BASE if epsilon is None else {**_BASE, "privacy": {"clip": _CLIP, "epsilon": epsilon}},
        )
        for column, epsilon in EPSILONS.items()
    )


def _more_accurate_than_shared(results: Results) -> Verdict:
    return every([claims.ahead(results, column, _DITTO, "global") for column in _PRIVATE])


def _shared_pays(results: Results) -> Verdict:
    """From no noise to the most, each step costs the shared model something."""
    verdicts = []
    for more, less in pairwise(EPSILONS):
        before, after = (claims.scores_by_seed(results, column, "global") for column in (more, less))
        pairs = [before[seed] - after[seed] for seed in before.keys() & after.keys()]
        verdicts.append(claims.exceed(pairs, what=f"from {more} to {less} it loses"))
    return every(verdicts)


def _personal_hardly_pay(results: Results) -> Verdict:
    """What the most noise costs the shared model and Ditto."""
    pairs = []
    for row in ("global", _DITTO):
        ends = [claims.scores_by_seed(results, column, row) for column in ("none", _PRIVATE[-1])]
        pairs.append([ends[0][seed] - ends[1][seed] for seed in sorted(ends[0].keys() & ends[1].keys())])
    less = [shared - own for shared, own in zip(*pairs, strict=True)]
    return claims.exceed(less, what="the most noise costs the shared model more than Ditto by")


def _better_than_alone(results: Results) -> Verdict:
    return every([claims.ahead(results, column, _DITTO, "local") for column in EPSILONS])


_PRIVACY = Experiment(
    name="ditto/privacy",
    title="Ditto beside the shared model under client-level differential privacy, on Fashion-MNIST",
    source="Ditto, Appendix E.1 (ICML 2021), which has no table of it",
    cells=_cells,
    grid=Grid(
        ROWS,
        {column: "no noise" if column == "none" else f"ε = {column}" for column in EPSILONS},
        "pooled",
        "std",
        "the accuracy over the test data of all clients/its standard deviation over them",
    ),
    golden=(golden.SERVER,),
    claims=(
        Claim("at every epsilon Ditto is more accurate than the shared model", _more_accurate_than_shared),
        Claim("the smaller epsilon, the worse the shared model", _shared_pays, ours=True),
        Claim("noise costs Ditto less than the shared model", _personal_hardly_pay, ours=True),
        Claim("at every epsilon Ditto is more accurate than training alone", _better_than_alone, ours=True),
    ),
    notes={
        "cpu": "Softmax regression with 500 clients, on average 100 in a round, 30 rounds; updates are cut to 0.3. "
        "Clients are drawn one by one and epsilon is that of opacus' Renyi accountant with delta 500^(-1.1)."
    },
    scales=("cpu",),
    digits=3,
    figure="holdfast.papers.ditto.privacy_figure:draw",
)

EXPERIMENTS = (_PRIVACY,)
