"""SPARE (Yang, Gan, Dziugaite and Mirzasoleiman, AISTATS 2024): the tables of its chapter, and what they claim.

Table 5.1 compares methods on three data sets by worst-group and average accuracy. At the ``cpu`` scale it is its CMNIST
column at the document's own setting, on real MNIST in the document's palette; ``smoke`` is a short training on the
bundled coloured digits, whose cells have names of their own because the document prints nothing about them; ``paper``
is all three columns. Every run keeps the checkpoint with the best worst group on validation data, the first on ties.

Mind the palette: the document copied ERM's row from the CnC paper, whose five colours are distinct, while its own
palette has two reds that are nearly the same. A classifier by colour is right for 20% of the test set under the former;
under the latter it has to tell two classes apart by shape among the reds, and is right for up to 0.6 / 5 + 0.4 * 2 / 5,
28%.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.results import Results

_TRAIN = "holdfast.papers.cells:train"

#: Data, model and training of each column (section 2.4 of the specification), and the average that it prints.
_COLUMNS: dict[str, dict[str, Any]] = {
    "digits": {
        "data": {"name": "coloured-digits5"},
        "model": {"name": "mlp"},
        "training": {"epochs": 3, "batch_size": 32, "learning_rate": 0.01, "weight_decay": 1e-3},
        "average": "accuracy",
    },
    "cmnist": {
        "data": {"name": "cmnist5", "palette": "dissertation"},
        "model": {"name": "lenet5"},
        "training": {"epochs": 20, "batch_size": 32, "learning_rate": 1e-3, "weight_decay": 1e-3},
        "average": "accuracy",
    },
    "waterbirds": {
        "data": {"name": "waterbirds"},
        "model": {"name": "resnet50", "weights": "imagenet"},
        "training": {
            "epochs": 300,
            "batch_size": 128,
            "learning_rate": 1e-4,
            "weight_decay": 0.1,
            "augment": "flip",
            "device": "auto",
        },
        "average": "train_mix",
    },
    "celeba": {
        "data": {"name": "celeba"},
        "model": {"name": "resnet50", "weights": "imagenet"},
        "training": {
            "epochs": 50,
            "batch_size": 128,
            "learning_rate": 1e-5,
            "weight_decay": 1.0,
            "augment": "flip",
            "device": "auto",
        },
        "average": "accuracy",
    },
}

_COLUMNS_AT: dict[Scale, tuple[str, ...]] = {
    "smoke": ("digits",),
    "cpu": ("cmnist",),
    "paper": ("cmnist", "waterbirds", "celeba"),
}

#: The rows that holdfast has: name of the method, and the modules that are its own.
_METHODS: dict[str, tuple[str, ...]] = {
    "erm": (),
    "class-balanced": ("spurious.balancing",),
    "group-balanced": ("spurious.balancing",),
}


def _cells(scale: Scale) -> tuple[Cell, ...]:
    return tuple(
        Cell(f"{column}/{method}", _TRAIN, {**_COLUMNS[column], "method": method}, depends)
        for column in _COLUMNS_AT[scale]
        for method, depends in _METHODS.items()
    )


def _row(worst: Printed, average: Printed) -> Mapping[str, Printed]:
    return {"worst_group": worst, "average": average}


_PRINTED = {
    "cmnist/erm": _row(Printed(0.0, 0.0), Printed(20.1, 0.2)),
    "cmnist/class-balanced": _row(Printed(0.0), Printed(23.7, 3.1)),
    "cmnist/group-balanced": _row(Printed(82.2, 1.0), Printed(91.7, 0.6)),
    "waterbirds/erm": _row(Printed(62.6, 0.3), Printed(97.3, 1.0)),
    "waterbirds/class-balanced": _row(Printed(62.8, 1.6), Printed(97.1, 0.1)),
    "waterbirds/group-balanced": _row(Printed(86.3, 0.3), Printed(93.0, 1.5)),
    "celeba/erm": _row(Printed(47.7, 2.1), Printed(94.9, 0.3)),
    "celeba/class-balanced": _row(Printed(46.1, 1.5), Printed(95.2, 0.4)),
    "celeba/group-balanced": _row(Printed(85.0, 1.1), Printed(92.7, 0.1)),
}


def _worst(results: Results, method: str) -> dict[str, float]:
    """Worst-group accuracy of a method, by column."""
    return {column: results.mean(f"{column}/{method}", "worst_group") for column in _COLUMNS_AT[results.scale]}


def _listed(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{score:.1f} on {column}" for column, score in scores.items())


def _ignores_minorities(results: Results) -> Verdict:
    """The printed worst group of ERM on CMNIST is 0.0."""
    column = _COLUMNS_AT[results.scale][0]
    worst = results.mean(f"{column}/erm", "worst_group")
    return Verdict(worst <= 5, f"its worst group has {worst:.1f} on {column} (at most 5)")


def _follows_colour(results: Results) -> Verdict:
    """A classifier of colours is right for one class in five when test colours are random; ERM prints 20.1."""
    average = results.mean("cmnist/erm", "average")
    return Verdict(abs(average - 20) <= 5, f"its average is {average:.1f} (20 within 5)")


def _class_balance_is_not_enough(results: Results) -> Verdict:
    """The printed differences between CB and ERM are 0.0, +0.2 and -1.6 points."""
    plain, balanced = _worst(results, "erm"), _worst(results, "class-balanced")
    gains = {column: balanced[column] - plain[column] for column in plain}
    return Verdict(max(gains.values()) <= 10, f"worst group gains {_listed(gains)} (at most 10)")


def _group_balance_repairs(results: Results) -> Verdict:
    """The printed differences between GB and ERM are 82.2, 23.7 and 37.3 points."""
    plain, balanced = _worst(results, "erm"), _worst(results, "group-balanced")
    gains = {column: balanced[column] - plain[column] for column in plain}
    least = {column: {"cmnist": 60, "digits": 5}.get(column, 15) for column in plain}
    holds = all(gains[column] >= least[column] for column in plain)
    return Verdict(holds, f"worst group gains {_listed(gains)} (at least {_listed(least)})")


def _group_balance_as_printed(results: Results) -> Verdict:
    """Ten points: about a dozen images per minority group in training leave room for the luck of the draw."""
    gaps = {}
    for column, ours in _worst(results, "group-balanced").items():
        printed = results.printed(f"{column}/group-balanced", "worst_group")
        assert printed is not None
        gaps[column] = ours - printed.mean
    return Verdict(max(map(abs, gaps.values())) <= 10, f"ours minus printed is {_listed(gaps)} (within 10)")


TABLE_5_1 = Experiment(
    name="spare/table5.1",
    title="Worst-group and average accuracy by method",
    source="SPARE, Table 5.1 of the dissertation (AISTATS 2024)",
    cells=_cells,
    depends=("data", "models", "primitives.streams", "training"),
    printed=_PRINTED,
    columns={"worst_group": "worst group, %", "average": "average, %"},
    claims=(
        Claim("plain training ignores the minority groups", _ignores_minorities),
        Claim("plain training goes by the colour", _follows_colour, scales=("cpu", "paper")),
        Claim("balancing the classes does not help the worst group", _class_balance_is_not_enough),
        Claim("balancing the groups repairs the worst group", _group_balance_repairs),
        Claim(
            "balancing the groups gives the printed worst group",
            _group_balance_as_printed,
            scales=("cpu", "paper"),
        ),
    ),
)

EXPERIMENTS = (TABLE_5_1,)
