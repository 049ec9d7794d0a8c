"""Golden cells of Ditto's tables: the federations of every row, made small, on data that come with the package.

Each goes through ``ditto-federations`` with the networks and methods of its table. The data sets of the paper must be
fetched, so clients share out the bundled digits or are generated: only the reading of those data sets goes unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.papers.ditto.columns import CHANGES, DEFENCES, KIND, threat_of
from holdfast.papers.engine.experiment import Cell

_DIGITS = {"name": "digits-clients", "clients": 20}
_TWO_CLASSES = {"name": "coloured-digits", "partition": "iid", "clients": 30, "sizes": "equal"}
_GENERATED = {"name": "surrogate", "q": 5}
_WORDS = {"name": "synthetic-many", "clients": 20, "examples": 40}

_SERIAL = {
    "rounds": 3,
    "cohort": 5,
    "batch_size": 32,
    "local_steps": 2,
    "learning_rate": 0.2,
    "evaluate_every": 0,
    "executor": "serial",
}
_BATCHED = {**_SERIAL, "executor": "batched", "chunk": 5}

_LOCAL: dict[str, Any] = {"name": "local"}
_FINETUNING: dict[str, Any] = {"name": "finetuning", "epochs": 1}
_AUTO: dict[str, Any] = {"name": "ditto", "lambda_": "auto", "candidates": [0.1, 1.0, 2.0]}


def _ditto(*lambdas: float) -> list[dict[str, Any]]:
    return [{"name": "ditto", "lambda_": lambda_} for lambda_ in lambdas]


def _cell(
    name: str,
    data: Mapping[str, Any],
    model: str,
    column: str,
    rounds: Mapping[str, Any],
    *,
    personalize: Sequence[Mapping[str, Any]] = (),
    runs: Sequence[Mapping[str, Any]] = ({},),
    **more: Any,
) -> Cell:
    settings = {
        "data": data,
        "data_by_seed": False,
        "model": model,
        "rounds": rounds,
        "threat": threat_of(column),
        "personalize": list(personalize),
        "runs": list(runs),
        "rows": {"global": ["global"]},
        **more,
    }
    return Cell(f"golden/{name}", KIND, settings)


def _changes(rows: Sequence[str]) -> list[Mapping[str, Any]]:
    """A federation for each row of `CHANGES`; FedMGDA+ with one epsilon."""
    return [CHANGES[row]["runs"][1] if row == "fedmgda" else CHANGES[row] for row in rows]


#: The federation of a column that gives global, local, fine-tuned and all of Ditto's models, with the network of the
#: smaller scale.
PLAIN = _cell(
    "plain", _DIGITS, "cnn-half", "a1-50", _BATCHED, personalize=[_LOCAL, *_ditto(0.1, 1.0, 2.0), _AUTO, _FINETUNING]
)
#: Every defence against boosted updates, and the fair objective.
DEFENDED = _cell("defences", _DIGITS, "cnn-half", "a3-20", _BATCHED, runs=_changes(("fair", *DEFENCES)))
#: The network of the paper's scale.
FASHION = _cell(
    "fashion", _DIGITS, "cnn-fashion", "a2-80", {**_SERIAL, "cohort": 2}, personalize=[*_ditto(1.0), _FINETUNING]
)
#: The hinge loss; labels are signs, and A1 turns them.
SVM = _cell(
    "svm",
    _TWO_CLASSES,
    "svm",
    "a1-50",
    {**_SERIAL, "local_steps": 1},
    personalize=[_LOCAL, *_ditto(0.1, 2.0), _AUTO],
    task="margin",
)
#: A network with dropout.
FEMNIST = _cell(
    "femnist",
    _DIGITS,
    "cnn-femnist",
    "a2-50",
    {**_SERIAL, "cohort": 3},
    personalize=[_LOCAL, *_ditto(0.1), _FINETUNING],
)
SKEWED = _cell("skewed", _DIGITS, "cnn-femnist", "a3-20", {**_SERIAL, "cohort": 4}, runs=_changes(("median", "k-loss")))
#: Batch normalisation, whose statistics are the batch's.
CELEBA = _cell(
    "celeba", _TWO_CLASSES, "cnn-celeba", "a1-50", {**_SERIAL, "cohort": 3, "batch_size": 16}, personalize=_ditto(1.0)
)
#: Epochs instead of steps, a halved step size, and words by their numbers, which parts of the generated inputs are.
WORDS = _cell(
    "words",
    _WORDS,
    "bag-of-words",
    "a2-20",
    {**_SERIAL, "local_steps": 2, "local_epochs": 1, "batch_size": 16, "halve_every": 1},
    personalize=[_LOCAL, *_ditto(0.05, 0.3)],
)
_RIVALS: tuple[tuple[Mapping[str, Any], ...], ...] = (
    (
        {"name": "ewc", "lambda_": 10.0, "epochs": 1},
        {"name": "skl", "lambda_": 1.0, "epochs": 1},
        {"name": "apfl", "alpha": 0.3},
    ),
    ({"name": "l2sgd", "lambda_": 1.0},),
    ({"name": "per-fedavg", "beta": 0.01, "epochs": 1},),
    ({"name": "mapper", "epochs": 1},),
)
#: Every other way to personal models.
RIVALS = _cell(
    "rivals",
    _DIGITS,
    "cnn-half",
    "a1-50",
    {**_SERIAL, "cohort": 3},
    runs=[{"personalize": list(methods)} for methods in _RIVALS],
)
ROBUST_DITTO = _cell(
    "robust-ditto",
    _DIGITS,
    "cnn-half",
    "a2-80",
    _BATCHED,
    personalize=_ditto(1.0),
    runs=[{"aggregator": {"name": name}} for name in ("clipping", "multi-krum")],
)
TILTED = _cell("tilted", _DIGITS, "cnn-half", "a1-50", _BATCHED, runs=_changes(("term-2", "term-5")))
SOLVERS = _cell(
    "solvers",
    _DIGITS,
    "cnn-half",
    "a3-20",
    _BATCHED,
    personalize=[*_ditto(0.1), {"name": "finetuning", "epochs": 1, "lambda_": 0.1}],
)
#: What the server does beside combining: noise that hides clients, another step than the mean, control variates.
SERVER = _cell(
    "server",
    _DIGITS,
    "softmax",
    "clean",
    {**_BATCHED, "rounds": 4, "sampling": "poisson"},
    personalize=[_LOCAL, *_ditto(0.1)],
    runs=[
        {"privacy": {"clip": 0.3, "noise_multiplier": 1.5}},
        *({"server_optimizer": {"name": name}} for name in ("fedavgm", "fedadagrad", "fedadam", "fedyogi")),
        {"objective": {"name": "scaffold"}},
    ],
)
GENERATED = _cell(
    "surrogate",
    _GENERATED,
    "softmax",
    "a3-20",
    {**_BATCHED, "rounds": 4, "cohort": 10, "chunk": 10, "learning_rate": 0.1, "batch_size": 16},
    personalize=[_LOCAL, *_ditto(0.1, 1.0, 2.0)],
    runs=_changes(("fair", "term-5", "median", "krum", "multi-krum", "clipping", "k-norm", "k-loss")),
)

#: Methods whose clients keep a part of the model, and Ditto whose personal part is the head.
LAYERS = _cell(
    "layers",
    _DIGITS,
    "cnn-half-batchnorm",
    "a1-50",
    _SERIAL,
    runs=[
        {"personalize": [{"name": "fedper"}]},
        {"personalize": [{"name": "fedrep", "head_steps": 2}]},
        {"personalize": [{"name": "fedbn"}]},
        {"personalize": [{"name": "ditto", "lambda_": 1.0, "start": "shared", "layers": ["head"]}]},
    ],
)
#: Fine-tuning from early shared models, beside Ditto.
EARLY = _cell(
    "early",
    _DIGITS,
    "cnn-half",
    "a3-20",
    _BATCHED,
    personalize=[{**_FINETUNING, "after": 1}, {**_FINETUNING, "after": 3}, *_ditto(1.0)],
)
