"""The columns that tables of methods share: a data set, a model, how it is trained, and which average is printed.

A cell of such a table is a method in a column. Its settings are the column's, overridden by the published preset of the
method there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.papers.engine.experiment import Cell
from holdfast.presets import preset_for


@dataclass(frozen=True)
class Column:
    """A data set and how models are trained on it.

    Attributes:
        data: name and options of the data set.
        model: name, and weights to start from.
        average: which average the documents print: `accuracy`, `train_mix` or `group_mean`.
        training: fields of `Training`.
        data_by_seed: draw the data by the cell's seed too, for the small sets of the CPU protocols.
        options: by method, on top of its preset, where that was changed after the tables were measured.
    """

    data: Mapping[str, Any]
    model: Mapping[str, Any]
    average: str
    training: Mapping[str, Any] = field(default_factory=dict)
    data_by_seed: bool = False
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The data set's name."""
        return str(self.data["name"])


_DIGITS = {"epochs": 12, "batch_size": 32, "learning_rate": 0.01, "weight_decay": 1e-3}
_RESNET = {"name": "resnet50", "weights": "imagenet"}
_IMAGES = {"augment": "flip", "device": "auto"}

COLUMNS: dict[str, Column] = {
    "digits": Column(
        {"name": "coloured-digits"},
        {"name": "mlp"},
        "accuracy",
        _DIGITS,
        data_by_seed=True,
        # As published; the preset leaves the rate as it is, since the cut costs accuracy here (pde/table6).
        options={"pde": {"rate_decay": 0.1}},
    ),
    "digits5": Column({"name": "coloured-digits5"}, {"name": "mlp"}, "accuracy", _DIGITS, data_by_seed=True),
    "cmnist": Column(
        {"name": "cmnist5"},
        {"name": "lenet5"},
        "accuracy",
        {"epochs": 20, "batch_size": 32, "learning_rate": 1e-3, "weight_decay": 1e-3, "augment": "crop"},
    ),
    "waterbirds": Column(
        {"name": "waterbirds"},
        _RESNET,
        "train_mix",
        {"epochs": 300, "batch_size": 128, "learning_rate": 1e-4, "weight_decay": 0.1, **_IMAGES},
    ),
    "celeba": Column(
        {"name": "celeba"},
        _RESNET,
        "accuracy",
        {"epochs": 50, "batch_size": 128, "learning_rate": 1e-5, "weight_decay": 1.0, **_IMAGES},
    ),
    "restricted-imagenet": Column(
        {"name": "restricted-imagenet"},
        {"name": "resnet50"},
        "accuracy",
        {
            "epochs": 90,
            "batch_size": 256,
            "learning_rate": 0.1,
            "weight_decay": 1e-4,
            "nesterov": True,
            "schedule": "steps",
            "milestones": [30 / 90, 60 / 90, 80 / 90],
            "select_by": "accuracy",
            **_IMAGES,
        },
    ),
    "civilcomments": Column(
        {"name": "civilcomments"},
        {"name": "distilbert-base-uncased", "weights": "hub"},
        "accuracy",
        {
            "epochs": 5,
            "batch_size": 16,
            "learning_rate": 1e-5,
            "weight_decay": 1e-2,
            "optimizer": "adamw",
            "decay_all": False,
            "clip_norm": 1.0,
            "schedule": "linear-steps",
            "device": "auto",
        },
    ),
}


def method_cell(
    column: str,
    method: str,
    *,
    row: str | None = None,
    groups: str | None = None,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    kind: str = "train",
) -> Cell:
    """A method in a column.

    Args:
        column: one of `COLUMNS`.
        method: one of `METHODS`.
        row: the row's name; the method's by default.
        groups: the method that infers the groups.
        preset: published settings by name; the method's default ones by default.
        options: options of the method, on top of the preset.
        data: options of the data set, on top of the preset.
        training: fields of `Training`, on top of the preset.
        kind: what computes the cell.

    Returns:
        The cell, named ``column/row``.
    """
    chosen = COLUMNS[column]
    published = preset_for(chosen.name, method, preset)
    all_options = {method: {**published.options, **chosen.options.get(method, {}), **(options or {})}}
    if groups is not None:
        all_options[groups] = dict(preset_for(chosen.name, groups).options)
    settings = {
        "data": {**chosen.data, **published.data_options, **(data or {})},
        "data_by_seed": chosen.data_by_seed,
        "model": dict(chosen.model),
        "method": method,
        "groups": groups,
        "options": {name: values for name, values in all_options.items() if values},
        "training": {**chosen.training, **published.training, **(training or {})},
        "average": chosen.average,
    }
    return Cell(f"{column}/{row or method}", kind, settings)


#: Nine or ten steps an epoch on the bundled digits, whose training set has 9,900 examples.
_FEW_STEPS = {"epochs": 1, "batch_size": 1100, "learning_rate": 0.2, "weight_decay": 1e-3}


def golden_cell(
    name: str,
    column: str,
    method: str,
    *,
    groups: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    data: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    kind: str = "train",
) -> Cell:
    """A method on bundled data in a few large mini-batches, see `holdfast.papers.engine.golden`.

    Args:
        name: the cell's name, behind ``golden/``.
        column: one of `COLUMNS` whose data are bundled.
        method: names of `METHODS`, joined by ``+``.
        groups: the method that infers the groups.
        options: options by method; nothing is taken from presets, so that they may change.
        data: another data set, by name and options.
        model: another model, by name.
        training: fields of `Training`, on top of a few steps.
        more: further settings of the kind.
        kind: what computes the cell.

    Returns:
        The cell.
    """
    chosen = COLUMNS[column]
    settings = {
        "data": dict(data or chosen.data),
        "model": dict(model or chosen.model),
        "method": method,
        "groups": groups,
        "options": {name: dict(given) for name, given in (options or {}).items()},
        "training": {**_FEW_STEPS, **(training or {})},
        "average": chosen.average,
        **(more or {}),
    }
    return Cell(f"golden/{name}", kind, settings)
