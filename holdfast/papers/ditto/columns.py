"""Cells of Ditto's tables: a data set with its recipe, a column that names the attack, and kinds of federations.

A column has one ``plain`` federation, FedAvg with everything that rides along or tunes its shared model, and one for
each objective or aggregator that changes the shared model. Recipes are the published ones (Ditto, Appendices D and
G.4), written down here so that the library's may change and the tables don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.papers.engine.experiment import Cell

KIND = "ditto-federations"


@dataclass(frozen=True)
class ColumnRecipe:
    """How a federation is trained on a data set; the fields are those of a data set's `TrainingRecipe`.

    It is a copy on purpose: declarations import no data sets, and a better recipe of the library must not change a
    published cell.
    """

    model: str
    learning_rate: float
    batch_size: int
    rounds: int
    cohort: int = 10
    local_steps: int = 2
    local_epochs: int = 0
    halve_every: int = 0
    weak: tuple[float, ...] = (0.1, 1.0, 2.0)
    strong: tuple[float, ...] = (0.05, 0.1, 0.2)
    fixed: tuple[float, ...] = (0.1, 1.0, 2.0)
    finetune_epochs: int = 50


_FEMNIST = ColumnRecipe("cnn-femnist", learning_rate=0.1, batch_size=32, rounds=1000, fixed=(0.01, 0.1, 1.0))
RECIPES: Mapping[str, ColumnRecipe] = {
    "vehicle": ColumnRecipe("svm", learning_rate=0.1, batch_size=32, rounds=600, local_steps=1),
    "femnist": _FEMNIST,
    "fashion-mnist": ColumnRecipe("cnn-fashion", learning_rate=0.05, batch_size=16, rounds=5000),
    "femnist-skewed": _FEMNIST,
    "celeba-leaf": ColumnRecipe("cnn-celeba", learning_rate=0.1, batch_size=16, rounds=1000),
    "stackoverflow": ColumnRecipe(
        "bag-of-words",
        learning_rate=0.01,
        batch_size=100,
        rounds=400,
        cohort=50,
        local_steps=0,
        local_epochs=1,
        halve_every=200,
        weak=(0.05, 0.1, 0.3),
        strong=(0.01, 0.05, 0.1),
        fixed=(0.05, 0.1, 0.3),
    ),
    "seglearn": ColumnRecipe("svm", learning_rate=0.1, batch_size=32, rounds=200),
    "chitchat": ColumnRecipe(
        "softmax",
        learning_rate=0.5,
        batch_size=20,
        rounds=400,
        local_steps=5,
        weak=(0.1, 0.3, 1.0),
        strong=(0.05, 0.1, 0.3),
        fixed=(0.1, 0.3, 1.0),
    ),
    "insteval": ColumnRecipe("softmax", learning_rate=1.0, batch_size=10, rounds=500, cohort=25, local_steps=8),
    "surrogate": ColumnRecipe("softmax", learning_rate=0.1, batch_size=16, rounds=600),
}

#: Rows that change the shared model, with what they change. FedMGDA+ is run with each epsilon that the paper tries.
EPSILONS = (0.0, 0.1, 0.5, 1.0)
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "fair": {"objective": {"name": "term", "t": 1.0}},
    "term-2": {"objective": {"name": "term", "t": 2.0}},
    "term-5": {"objective": {"name": "term", "t": 5.0}},
    **{
        name: {"aggregator": {"name": name}}
        for name in ("median", "krum", "multi-krum", "clipping", "k-norm", "k-loss")
    },
    "fedmgda": {"runs": [{"aggregator": {"name": "fedmgda", "epsilon": epsilon}} for epsilon in EPSILONS]},
}
DEFENCES = ("median", "krum", "multi-krum", "clipping", "k-norm", "k-loss", "fedmgda")


@dataclass(frozen=True)
class TableSetting:
    """A data set and how a federation is trained on it.

    Attributes:
        name: the data set.
        lambdas: of the rows with one lambda for all; those of the recipe by default.
        model: the network; that of the recipe by default.
        rounds: fields of `holdfast.federated.Rounds` that differ from the recipe.
        options: of the data set.
        by_seed: whether the seed draws the data too, as for generated data.
        epochs: of fine-tuning; those of the recipe by default. 0 leaves the row out, as the paper does for convex
            models.
        epsilon: of FedMGDA+; chosen on validation data by default.
        auto: whether there are rows whose clients choose lambda, and that of the best lambda.
    """

    name: str
    lambdas: tuple[float, ...] = ()
    model: str = ""
    rounds: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    by_seed: bool = False
    epochs: int | None = None
    epsilon: float | None = None
    auto: bool = True

    @property
    def ditto_rows(self) -> tuple[str, ...]:
        """Rows with one lambda for all."""
        return tuple(f"ditto-{lambda_:g}" for lambda_ in self.lambdas or self.recipe.fixed)

    @property
    def recipe(self) -> ColumnRecipe:
        """The published settings of the data set."""
        return RECIPES[self.name]

    def plain(self, column: str) -> dict[str, Any]:
        """Settings of the federation that gives global, local, fine-tuned and all of Ditto's models."""
        recipe = self.recipe
        lambdas = self.lambdas or recipe.fixed
        epochs = recipe.finetune_epochs if self.epochs is None else self.epochs
        methods: list[dict[str, Any]] = [{"name": "local"}, *({"name": "ditto", "lambda_": each} for each in lambdas)]
        rows = {row: [row] for row in ("global", "local", *self.ditto_rows)}
        if self.auto:
            candidates = recipe.strong if is_strong(column) else recipe.weak
            methods.append({"name": "ditto", "lambda_": "auto", "candidates": list(candidates)})
            rows |= {"ditto-auto": ["ditto-auto"], "ditto-best": list(self.ditto_rows)}
        if epochs:
            methods.append({"name": "finetuning", "epochs": epochs})
            rows["finetuning"] = ["finetuning"]
        return {**self.base(column), "personalize": methods, "rows": rows}

    def changed(self, column: str, row: str) -> dict[str, Any]:
        """Settings of the federation whose shared model is that of a row of `CHANGES`."""
        changes = CHANGES[row]
        if row == "fedmgda" and self.epsilon is not None:
            changes = {"aggregator": {"name": "fedmgda", "epsilon": self.epsilon}}
        return {**self.base(column), **changes, "rows": {row: ["global"]}}

    def base(self, column: str) -> dict[str, Any]:
        """Settings that all federations of a column have."""
        recipe = self.recipe
        work = {"local_epochs": recipe.local_epochs} if recipe.local_epochs else {"local_steps": recipe.local_steps}
        rounds = {
            "rounds": recipe.rounds,
            "cohort": recipe.cohort,
            "batch_size": recipe.batch_size,
            "learning_rate": recipe.learning_rate,
            **work,
            **({"halve_every": recipe.halve_every} if recipe.halve_every else {}),
            "evaluate_every": 0,
            "executor": "serial",
            **self.rounds,
        }
        return {
            "data": {"name": self.name, **self.options},
            "data_by_seed": self.by_seed,
            "model": self.model or recipe.model,
            "rounds": rounds,
            "threat": threat_of(column),
        }

    def cells(self, column: str, rows: Iterable[str], *, name: str = "", most_seeds: int | None = None) -> list[Cell]:
        """The plain federation of a column and those of the rows of `CHANGES`.

        Args:
            column: such as ``a1-20``.
            rows: keys of `CHANGES`.
            name: of the column in the table, where it has another.
            most_seeds: of each cell.
        """
        settings = {"plain": self.plain(column)} | {row: self.changed(column, row) for row in rows}
        return [self.cell(f"{name or column}/{kind}", each, most_seeds) for kind, each in settings.items()]

    def cell(self, name: str, settings: Mapping[str, Any], most_seeds: int | None = None) -> Cell:
        """A cell with these settings."""
        return Cell(name, KIND, settings, most_seeds=most_seeds)


def threat_of(column: str) -> dict[str, Any] | None:
    """The attack of a column: ``a1-20`` is A1 by 20 percent of the clients, ``clean`` is nobody."""
    if column == "clean":
        return None
    name, percent = column.split("-")
    return {"name": name, "ratio": int(percent) / 100}


def is_strong(column: str) -> bool:
    """Whether clients are told of a strong attack: any model replacement, or more than half of them malicious."""
    threat = threat_of(column)
    return threat is not None and (threat["name"] == "a3" or threat["ratio"] > 0.5)


def kind_of(row: str) -> str:
    """The cell of a column that has a row: its own where it changes the shared model, else the plain one."""
    return row if row in CHANGES else "plain"
